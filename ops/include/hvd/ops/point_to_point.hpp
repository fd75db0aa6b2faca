// Messages from one rank to another, torch-free.
#pragma once

#include <span>
#include <string>
#include <type_traits>

#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Sends `count` elements to rank `to`, which receives as many of this type under the same name.
/// Names are per sender and receiver; an empty one comes from the order of unnamed messages from
/// this rank to that. A message is an operation like the others: ranks may submit in any order,
/// arguments that do not match are Errc::mismatch on both sides, and a missing side is reported as
/// a stall. The send is done when the receiver has the message. Two ranks that send to each other
/// use `send_async`, since two blocking sends would wait for each other.
[[nodiscard]] Work send_async(Context& context, const void* data, std::int64_t count, DType dtype,
                              int to, const std::string& name = {});
void send(Context& context, const void* data, std::int64_t count, DType dtype, int to,
          const std::string& name = {});

/// Receives the message that rank `from` sends under this name.
[[nodiscard]] Work recv_async(Context& context, void* data, std::int64_t count, DType dtype,
                              int from, const std::string& name = {});
void recv(Context& context, void* data, std::int64_t count, DType dtype, int from,
          const std::string& name = {});

template <class T>
void send(Context& context, std::span<T> data, int to, const std::string& name = {}) {
  send(context, data.data(), std::ssize(data), kDTypeOf<std::remove_const_t<T>>, to, name);
}
template <class T>
void recv(Context& context, std::span<T> data, int from, const std::string& name = {}) {
  recv(context, data.data(), std::ssize(data), kDTypeOf<T>, from, name);
}

}  // namespace hvd
