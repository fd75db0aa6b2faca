# Sets the compiler options of this build. None of them applies to a project that uses hvd.

# A plain `cmake -B build` makes an optimised build.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
set(HVD_LIBTORCH_HINT "${LibTorch_PREFIX}") # where projects that use hvd look for its LibTorch
if(HVD_WHEEL)
  include(HvdWheel)
endif()
if(HVD_HIDE_PATHS AND HVD_HAVE_TORCH) # LibTorch's headers put their own paths into messages of errors
  set_property(TARGET LibTorch::torch APPEND PROPERTY INTERFACE_COMPILE_OPTIONS
                                                      "-fmacro-prefix-map=${LibTorch_PREFIX}/=")
endif()

# Programs are compiled with -fPIC too (not -fPIE), so that they share the libraries' precompiled
# LibTorch header, which g++ accepts only if the position-independence flags are the same. CMake adds
# no second -fPIC for shared libraries, so that ccache has their objects from a static build.
add_compile_options(-fPIC)
set(CMAKE_CXX_COMPILE_OPTIONS_PIC "")

if(HVD_SANITIZE)
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HVD_SANITIZE})
endif()
if(HVD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link) # the fuzzers need the coverage of the libraries
endif()

# Clones of the repository share compiled objects, because ccache sees paths relative to the source
# tree. It keeps the hashes of files by inode, because it would otherwise hash LibTorch's
# precompiled header, 700 MB, for each file.
if(HVD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(HVD_CCACHE_PROGRAM ccache)
  mark_as_advanced(HVD_CCACHE_PROGRAM)
  if(HVD_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env
        "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_INODECACHE=1
        "${HVD_CCACHE_PROGRAM}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)
    elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
endif()

function(hvd_set_warnings target)
  target_compile_options(
    ${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                      $<$<BOOL:${HVD_WARNINGS_AS_ERRORS}>:-Werror>)
endfunction()
