# Writes OUTPUT, a C++ source that holds the texts of FILES (semicolon list) as crossdock::family::BuiltinFiles().
set(entries "")
set(count 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" text)
  string(APPEND entries "    {\"${name}\", R\"CROSSDOCK(${text})CROSSDOCK\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
set(source "// Written by cmake/EmbedFamilies.cmake from families/*.toml.
#include \"family/builtin_files.h\"

#include <array>

namespace crossdock::family {

std::span<const BuiltinFile> BuiltinFiles() {
  static constexpr std::array<BuiltinFile, ${count}> kFiles = {{
${entries}  }};
  return kFiles;
}

}  // namespace crossdock::family
")
file(WRITE "${OUTPUT}" "${source}")
