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
if(@ZERO_HAVE_CUDA@)
  find_dependency(CUDAToolkit)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/zeroTargets.cmake)
]])
  # Before version 1 a minor version may change the API.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/zeroConfig.cmake ${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
    DESTINATION ${zero_package_dir})
endif()
