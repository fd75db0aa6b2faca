#include "cost/plan_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

namespace hvd {
namespace {

/// The plan of a line that begins with the signature.
std::optional<std::string_view> plan_in(std::string_view line, std::string_view signature) {
  if (line.substr(0, signature.size()) != signature || line.substr(signature.size(), 1) != " ") {
    return std::nullopt;
  }
  return line.substr(signature.size() + 1);
}

}  // namespace

std::string PlanFile::read() const {
  std::ifstream file(path_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<Plan> PlanFile::load(std::string_view signature) const {
  std::istringstream lines(read());
  for (std::string line; std::getline(lines, line);) {
    const auto text = plan_in(line, signature);
    if (!text) continue;
    try {
      return Plan::parse(*text);
    } catch (const Error& error) {
      throw Error(Errc::invalid_argument, fmt::format("{}: {}", path_, error.what()));
    }
  }
  return std::nullopt;
}

void PlanFile::save(std::string_view signature, const Plan& plan) const {
  const std::string temporary = fmt::format("{}.{}", path_, ::getpid());
  {
    std::istringstream lines(read());
    std::ofstream file(temporary);
    for (std::string line; std::getline(lines, line);) {
      if (!plan_in(line, signature)) file << line << '\n';
    }
    file << signature << ' ' << plan.text() << '\n';
  }
  std::ifstream written(temporary);
  if (!written || std::rename(temporary.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    static_cast<void>(std::remove(temporary.c_str()));
    throw Error(Errc::resource, fmt::format("{}: {}", path_, std::strerror(reason)));
  }
}

}  // namespace hvd
