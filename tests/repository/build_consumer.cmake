# Installs BUILD_DIR into a fresh prefix below WORK_DIR, then configures, builds and runs the
# project of CONSUMER_DIR with nothing but that prefix.
foreach(name BUILD_DIR CONSUMER_DIR WORK_DIR GENERATOR COMPILER)
  if(NOT ${name})
    message(FATAL_ERROR "-D ${name}=... is missing")
  endif()
endforeach()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

set(options -D CMAKE_BUILD_TYPE=Release)
if(SANITIZE)
  # A program that links a sanitized library must be sanitized itself.
  set(options -D CMAKE_CXX_FLAGS=-O1\ -fsanitize=${SANITIZE})
endif()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
foreach(program zero-train zero-plan zero-checkpoint zero-sample zero-bench)
  if(EXISTS ${BUILD_DIR}/bin/${program})
    execute_process(COMMAND ${WORK_DIR}/prefix/bin/${program} --help
                    OUTPUT_QUIET RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "the installed ${program} --help ends with ${result}")
    endif()
  endif()
endforeach()
run(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix ${options})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --parallel 2)
run(${WORK_DIR}/build/consumer)
file(REMOVE_RECURSE ${WORK_DIR})
