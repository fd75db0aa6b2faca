#include "spawn/spawn_output.hpp"

#include <utility>

#include <boost/asio/post.hpp>

#include <hvd/core/internal/start_thread.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd::launcher {
namespace {

LineMux lines_of(Stream stream, const SpawnOptions& options, int ranks) {
  return {stream, ranks, {.timestamps = options.prefix_output_with_timestamp}};
}

std::size_t index_of(Stream stream) { return static_cast<std::size_t>(stream); }

}  // namespace

SpawnOutput::SpawnOutput(const SpawnOptions& options, int ranks)
    : functions_{&options.output, &options.error},
      lines_{lines_of(Stream::out, options, ranks), lines_of(Stream::err, options, ranks)},
      work_(io_.get_executor()) {
  if (takes(Stream::out) || takes(Stream::err)) {
    thread_ = detail::start_thread("hvd-spawn-out", [this] { io_.run(); });
  }
}

SpawnOutput::~SpawnOutput() {
  if (!thread_.joinable()) return;
  work_.reset();
  thread_.join();
  for (const Stream stream : {Stream::out, Stream::err}) {
    call(stream, lines_.at(index_of(stream)).finish(LineMux::WallClock::now()));
  }
}

bool SpawnOutput::takes(Stream stream) const {
  return static_cast<bool>(*functions_.at(index_of(stream)));
}

void SpawnOutput::take(int rank, Stream stream, Bytes bytes, std::function<void()> on_taken) {
  boost::asio::post(io_, [this, rank, stream, bytes = std::move(bytes),
                          on_taken = std::move(on_taken)] {
    call(stream,
         lines_.at(index_of(stream)).feed(rank, detail::text_of(bytes), LineMux::WallClock::now()));
    on_taken();
  });
}

void SpawnOutput::call(Stream stream, std::string_view lines) {
  if (failed_ || lines.empty() || !takes(stream)) return;
  try {
    (*functions_.at(index_of(stream)))(lines);
  } catch (...) {
    failed_ = true;
  }
}

}  // namespace hvd::launcher
