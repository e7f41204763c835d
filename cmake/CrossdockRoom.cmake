# Warnings, sanitizers and language level, as one interface target that our own code links and nobody else.
add_library(crossdock_flags INTERFACE)
target_compile_features(crossdock_flags INTERFACE cxx_std_20)
target_compile_options(crossdock_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor -Wcast-align
  -Woverloaded-virtual -Wimplicit-fallthrough -Wextra-semi
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond -Wlogical-op -Wunused-const-variable=1>
  # g++ 12 sees overlaps in `"." + std::string` that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # clang 19 reports what std::stable_sort of libstdc++ 12 uses inside as deprecated.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<BOOL:${CROSSDOCK_WERROR}>:-Werror>)
if(CROSSDOCK_SANITIZE)
  target_compile_options(crossdock_flags INTERFACE -fsanitize=${CROSSDOCK_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(crossdock_flags INTERFACE -fsanitize=${CROSSDOCK_SANITIZE})
endif()
if(CROSSDOCK_BUILD_FUZZERS)
  target_compile_options(crossdock_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# crossdock_room(NAME SOURCES a.cc ... DEPS room ... LIBS third::party ...)
# One library a room; DEPS are the arrows of ARCHITECTURE.md, LIBS stay private.
function(crossdock_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(crossdock_${name} STATIC ${ARG_SOURCES})
  # With it one build serves the program and the Python module. Hidden symbols cannot be replaced from outside, so position
  # independent code is inlined as freely as a program's.
  if(CROSSDOCK_PYTHON)
    set_target_properties(crossdock_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  endif()
  target_include_directories(crossdock_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  list(TRANSFORM ARG_DEPS PREPEND crossdock_)
  target_link_libraries(crossdock_${name} PUBLIC ${ARG_DEPS} PRIVATE crossdock_flags ${ARG_LIBS})
endfunction()

# crossdock_test(NAME SOURCES a_test.cc ... DEPS room ... LABELS unit): one GoogleTest program.
function(crossdock_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND crossdock_)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(${name} PRIVATE CROSSDOCK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # The rooms keep their own level; the tests only have to build fast. With sanitizers both do: g++ takes twice as long at -O1.
  if(NOT CROSSDOCK_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} crossdock_flags ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  # GoogleMock's headers cost more than most of our tests: a few files are compiled as one.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
endfunction()
