// Whether a host's name means this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::net {

/// The numeric addresses of `host`, in the resolver's order; none when it does not know the name.
/// Blocks as long as the system's resolver does.
[[nodiscard]] std::vector<std::string> resolve(const std::string& host);

/// True when one of them is an address of this machine, loopback included.
[[nodiscard]] bool is_this_machine(const std::string& host);

/// Where a server has to listen to be found under `host` on other machines: an address of this one
/// that the name stands for, or `host` itself when it was spelled as a loopback address; nothing
/// when the name is, here, only one for the loopback (as Debian's installer leaves it) or for a
/// translated address.
[[nodiscard]] std::optional<std::string> own_address_of(const std::string& host);

}  // namespace hvd::net
