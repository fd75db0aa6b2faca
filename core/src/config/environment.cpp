// This is the only file of the library that reads the environment.
#include "config/environment.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include <hvd/core/config.hpp>

#include "config/variable_reader.hpp"

namespace hvd::detail {
namespace {

std::optional<int> peer_process(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) {
    return std::nullopt;
  }
  return peer.pid;
}

}  // namespace

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Config parse_config(const Lookup& lookup, const Surroundings& ask) {
  const VariableReader read(lookup);
  Config config;
  read_job(read, ask, config);
  read_settings(read, config);
  return config;
}

}  // namespace hvd::detail

namespace hvd {

using namespace detail;

Config Config::from_environment() {
  return parse_config(environment_variable, {.pmix = ask_pmix, .peer_process = peer_process});
}

Config Config::settings_from_environment() {
  const Lookup lookup = environment_variable;
  Config config;
  read_settings(VariableReader(lookup), config);
  return config;
}

}  // namespace hvd
