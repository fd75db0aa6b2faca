// Declares messages from one rank to another, which need no LibTorch.
#pragma once

#include <span>
#include <string>
#include <type_traits>

#include <hvd/ops/collectives.hpp>

namespace hvd {

struct MessageOptions {
  std::string name{};          ///< when empty, it comes from the order of unnamed messages
  Context* context = nullptr;  ///< when null, the default one, `hvd::context()`
};

/// Sends `count` elements to rank `to`, which receives as many of this type under the same name.
/// Names are per sender and receiver; an empty one comes from the order of unnamed messages from
/// this rank to that. A message is an operation like the others: ranks may submit in any order,
/// arguments that do not match are Errc::mismatch on both sides, and a missing side is reported as
/// a stall. The send is done when the receiver has the message. Two ranks that send to each other
/// use `send_async`, since two blocking sends would wait for each other.
[[nodiscard]] Work send_async(const void* data, std::int64_t count, DType dtype, int to,
                              const MessageOptions& options = {});
void send(const void* data, std::int64_t count, DType dtype, int to,
          const MessageOptions& options = {});

/// Receives the message that rank `from` sends under this name.
[[nodiscard]] Work recv_async(void* data, std::int64_t count, DType dtype, int from,
                              const MessageOptions& options = {});
void recv(void* data, std::int64_t count, DType dtype, int from,
          const MessageOptions& options = {});

template <class T>
void send(std::span<T> data, int to, const MessageOptions& options = {}) {
  send(data.data(), std::ssize(data), kDTypeOf<std::remove_const_t<T>>, to, options);
}
template <class T>
void recv(std::span<T> data, int from, const MessageOptions& options = {}) {
  recv(data.data(), std::ssize(data), kDTypeOf<T>, from, options);
}

}  // namespace hvd
