#include "cli/check_build.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

using nlohmann::json;

struct Part {
  const char* key;
  const char* version_key;
  const char* name;
};

std::string line(bool there, std::string_view name, const std::string& version) {
  return fmt::format("    [{}] {}{}{}\n", there ? 'X' : ' ', name, version.empty() ? "" : " ",
                     there ? version : "");
}

std::string part_line(const json& record, const Part& part) {
  const bool there = record.value(part.key, false);
  const std::string version =
      there && part.version_key != nullptr ? record.value(part.version_key, "") : "";
  std::string name = part.name;
  if (version.empty() && name.ends_with(':')) name.pop_back();
  return line(there, name, version);
}

}  // namespace

std::string read_build_record() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = program.parent_path().parent_path() / "share" / "hvd" / "build.json";
  std::ifstream file(path);
  if (error || !file) {
    throw LaunchError(kExitInternal,
                      fmt::format("cannot read the build record {}", in_quotes(path.string())));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string build_table(std::string_view text) {
  const json record = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) throw LaunchError(kExitInternal, "the build record is damaged");
  try {
    std::string table = fmt::format("hvd {} ({}, {})\n", record.value("version", "?"),
                                    record.value("build_type", "?"), record.value("compiler", "?"));
    table += "\nAvailable Frameworks:\n";
    table += part_line(record, {"torch", "libtorch_version", "PyTorch, as LibTorch"});
    table += part_line(record, {"torch_cuda", nullptr, "PyTorch tensors on CUDA"});
    table += part_line(record, {"python", "python_version", "the package for Python"});
    table += part_line(record, {"estimator", "arrow_version", "the estimator, on Arrow"});
    table += "\nAvailable Controllers:\n";
    table += line(true, "hvdrun (a store of its own)", "");
    table += part_line(record, {"pmix", "pmix_version", "PMIx"});
    table += part_line(record, {"hwloc", "hwloc_version", "binding of ranks to cores, with hwloc"});
    table += "\nAvailable Tensor Operations:\n";
    table += line(true, "native (shared memory, TCP)", "");
    table += part_line(record, {"mpi", "mpi_library", "MPI:"});
    table += part_line(record, {"nccl", "nccl_version", "NCCL"});
    table += part_line(record, {"nccl", "cuda_version", "CUDA"});
    return table;
  } catch (const json::exception&) {
    throw LaunchError(kExitInternal, "the build record is damaged");
  }
}

}  // namespace hvd::launcher
