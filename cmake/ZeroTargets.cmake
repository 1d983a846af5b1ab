# zero_floor(<folder> SOURCES ... HEADERS ... LINK ...): one static library per folder.
# HEADERS are the ones a user may include; they are installed. A floor links lower floors only.

function(zero_compile_settings target)
  # No contraction: every SIMD target, scalar code and CUDA must give the same bits.
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
    -ffp-contract=off -fno-math-errno)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 sees an overlap in "literal" + std::string that is not there.
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(ZERO_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ZERO_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${ZERO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ZERO_SANITIZE})
    target_compile_definitions(${target} PRIVATE ZERO_POISON=1)
    if(ZERO_SANITIZE MATCHES "thread")
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
endfunction()

function(zero_floor folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK" ${ARGN})
  set(target zero_${folder})
  add_library(${target} STATIC ${ARG_SOURCES} ${ARG_HEADERS})
  zero_compile_settings(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:include/zero>)
  target_link_libraries(${target} PUBLIC ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY ZERO_FLOORS ${target})
  foreach(header IN LISTS ARG_HEADERS)
    set_property(GLOBAL APPEND PROPERTY ZERO_PUBLIC_HEADERS ${folder}/${header})
  endforeach()
endfunction()

# For targets of .cu files that nvcc compiles. Never with sanitizers, which know nothing of a GPU.
function(zero_cuda_compile_settings target)
  # No contraction, as in zero_compile_settings.
  target_compile_options(${target} PRIVATE
    --fmad=false --expt-relaxed-constexpr
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  if(ZERO_WERROR)
    target_compile_options(${target} PRIVATE --Werror=all-warnings -Xcompiler=-Werror)
  endif()
endfunction()

# zero_cuda_floor(<folder> SOURCES ... LINK ...): the kernels of a folder as a static library of
# their own, zero_<folder>_cuda, which other objects with the same functions can stand in for.
function(zero_cuda_floor folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  set(target zero_${folder}_cuda)
  add_library(${target} STATIC ${ARG_SOURCES})
  zero_cuda_compile_settings(${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:include/zero>)
  target_link_libraries(${target} PUBLIC ${ARG_LINK} CUDA::cudart_static)
  set_property(GLOBAL APPEND PROPERTY ZERO_FLOORS ${target})
endfunction()

# Links a program. Where the stand-in of cudart is among the libraries, those of kernels compiled by
# nvcc are left out.
function(zero_link name)
  target_link_libraries(${name} PRIVATE ${ARGN})
  if("cudart_standin" IN_LIST ARGN)
    set_target_properties(${name} PROPERTIES ZERO_STANDIN ON)
  endif()
endfunction()

# zero_program(<name> [INSTALL] SOURCES ... LINK ...): INSTALL: it is for users, and is installed.
function(zero_program name)
  cmake_parse_arguments(ARG "INSTALL" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_INSTALL)
    set_property(GLOBAL APPEND PROPERTY ZERO_INSTALLED_PROGRAMS ${name})
  endif()
  zero_compile_settings(${name})
  zero_link(${name} ${ARG_LINK})
endfunction()
