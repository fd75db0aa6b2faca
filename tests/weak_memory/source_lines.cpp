#include "source_lines.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

namespace hvd::weak {
namespace {

constexpr std::string_view kRoom = "ops/src/";

/// Returns where this program is loaded.
std::uintptr_t base() {
  std::uintptr_t at = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the first object is the program
      },
      &at);
  return at;
}

}  // namespace

std::map<const void*, std::string> lines_of(const Sites& sites) {
  std::map<std::uintptr_t, const void*> by_address;
  std::string command = "addr2line -a -i -e /proc/" + std::to_string(::getpid()) + "/exe";
  for (const auto& [site, about] : sites) {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(site) - base() - 1;
    by_address[address] = site;
    command += fmt::format(" {:#x}", address);
  }
  std::map<const void*, std::string> lines;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             &::pclose);
  std::array<char, 4096> buffer{};
  const void* site = nullptr;
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    std::string line(buffer.data());
    line.resize(line.find_first_of(" \n"));
    if (line.starts_with("0x")) {
      site = by_address[std::stoull(line, nullptr, 16)];
    } else if (const auto room = line.rfind(kRoom); room != std::string::npos) {
      // The frames come from the innermost on; those of the standard library are passed over.
      lines.try_emplace(site, line.substr(room + kRoom.size()));
    }
  }
  return lines;
}

}  // namespace hvd::weak
