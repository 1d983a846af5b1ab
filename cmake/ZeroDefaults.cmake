# Settings shared by every target of this project; nothing here reaches its users.

if(CMAKE_SOURCE_DIR STREQUAL PROJECT_SOURCE_DIR)
  set(zero_is_top_level ON)
else()
  set(zero_is_top_level OFF)
endif()
option(ZERO_DEVELOPER "Build examples, benchmarks, tools and tests" ${zero_is_top_level})
set(ZERO_SANITIZE "" CACHE STRING "Sanitizers for every target: empty, 'address,undefined' or 'thread'")
option(ZERO_PORTABLE "Programs need no library of the C++ side on the machine that runs them" OFF)
option(ZERO_WERROR "Turn warnings into errors" ${zero_is_top_level})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(zero_is_top_level)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endif()
find_program(ZERO_CCACHE ccache)
if(zero_is_top_level AND ZERO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${ZERO_CCACHE})
endif()
