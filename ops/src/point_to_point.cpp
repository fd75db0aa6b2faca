// Implements a message as a broadcast between two ranks.
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/process_set.hpp>
#include <hvd/ops/point_to_point.hpp>

namespace hvd {
namespace {

Submission message(const Context& context, void* data, std::int64_t count, DType dtype, int from,
                   int to, const std::string& name) {
  const int other = from == context.rank() ? to : from;
  if (other < 0 || other >= context.size() || from == to) {
    throw Error(Errc::invalid_argument,
                fmt::format("message '{}' between rank {} and {}: expected another rank below {}",
                            name, from, to, context.size()));
  }
  Submission submission;
  submission.request.name = name;
  submission.request.kind = OpKind::broadcast;
  submission.request.dtype = dtype;
  submission.request.shape = {count};
  submission.request.root = from;
  submission.request.process_set = pair_set(from, to, context.size()).id;
  submission.input = data;
  submission.output = data;
  return submission;
}

Submission outgoing(const Context& context, const void* data, std::int64_t count, DType dtype,
                    int to, const std::string& name) {
  // The root's memory is only read.
  return message(context, const_cast<void*>(data), count, dtype, context.rank(), to, name);
}

Submission incoming(const Context& context, void* data, std::int64_t count, DType dtype, int from,
                    const std::string& name) {
  return message(context, data, count, dtype, from, context.rank(), name);
}

}  // namespace

Work send_async(const void* data, std::int64_t count, DType dtype, int to,
                const MessageOptions& options) {
  Context& context = context_of(options);
  return context.submit(outgoing(context, data, count, dtype, to, options.name));
}

void send(const void* data, std::int64_t count, DType dtype, int to,
          const MessageOptions& options) {
  Context& context = context_of(options);
  context.run(outgoing(context, data, count, dtype, to, options.name));
}

Work recv_async(void* data, std::int64_t count, DType dtype, int from,
                const MessageOptions& options) {
  Context& context = context_of(options);
  return context.submit(incoming(context, data, count, dtype, from, options.name));
}

void recv(void* data, std::int64_t count, DType dtype, int from, const MessageOptions& options) {
  Context& context = context_of(options);
  context.run(incoming(context, data, count, dtype, from, options.name));
}

}  // namespace hvd
