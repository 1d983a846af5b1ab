# The installed package: find_package(zero CONFIG), then link zero::zero, or a lower floor by its
# folder: zero::device, zero::io, ... In a super-build the same names are aliases.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

option(ZERO_INSTALL "Make install rules for the library" ${zero_is_top_level})

get_property(zero_floors GLOBAL PROPERTY ZERO_FLOORS)
foreach(target IN LISTS zero_floors)
  string(REGEX REPLACE "^zero_" "" floor ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${floor})
  add_library(zero::${floor} ALIAS ${target})
endforeach()

if(ZERO_INSTALL)
  install(TARGETS ${zero_floors} EXPORT zeroTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

  # Where they have been built: the library alone can be installed as well.
  get_property(zero_programs GLOBAL PROPERTY ZERO_INSTALLED_PROGRAMS)
  if(zero_programs)
    install(TARGETS ${zero_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  endif()

  get_property(zero_headers GLOBAL PROPERTY ZERO_PUBLIC_HEADERS)
  foreach(header IN LISTS zero_headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION include/zero/${folder})
  endforeach()

  set(zero_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/zero)
  install(EXPORT zeroTargets NAMESPACE zero:: DESTINATION ${zero_package_dir})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/zeroConfig.cmake @ONLY CONTENT [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl CONFIG)
find_dependency(nlohmann_json CONFIG)
find_dependency(hwy CONFIG)
# What the library was built with is needed to link it.
if(@ZERO_HAVE_CUDA@)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(zero_FOUND FALSE)
    set(zero_NOT_FOUND_MESSAGE "this zero was built with CUDA, and the CUDA toolkit was not found: \
put nvcc on the PATH or set CUDAToolkit_ROOT; or build zero without it, with \
-D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
    return()
  endif()
endif()
if(@ZERO_HAVE_GLOO@ AND NOT TARGET gloo)
  find_library(zero_GLOO_LIBRARY gloo)
  if(NOT zero_GLOO_LIBRARY)
    set(zero_FOUND FALSE)
    set(zero_NOT_FOUND_MESSAGE "this zero was built with Gloo, and libgloo was not found: install \
it (Debian: libgloo-dev) or set CMAKE_PREFIX_PATH; or build zero without it, with -D ZERO_GLOO=OFF")
    return()
  endif()
  add_library(gloo UNKNOWN IMPORTED)
  set_target_properties(gloo PROPERTIES IMPORTED_LOCATION ${zero_GLOO_LIBRARY})
endif()
if(@ZERO_HAVE_IO_URING@ AND NOT TARGET uring)
  find_library(zero_URING_LIBRARY uring)
  if(NOT zero_URING_LIBRARY)
    set(zero_FOUND FALSE)
    set(zero_NOT_FOUND_MESSAGE "this zero was built with io_uring, and liburing was not found: \
install it (Debian: liburing-dev) or set CMAKE_PREFIX_PATH; or build zero without it, with \
-D ZERO_IO_URING=OFF")
    return()
  endif()
  add_library(uring UNKNOWN IMPORTED)
  set_target_properties(uring PROPERTIES IMPORTED_LOCATION ${zero_URING_LIBRARY})
endif()
include(${CMAKE_CURRENT_LIST_DIR}/zeroTargets.cmake)
]])
  # Before version 1 a minor version may change the API.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/zeroConfig.cmake ${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
    DESTINATION ${zero_package_dir})
endif()
