#include "output_hub.hpp"

#include <chrono>
#include <utility>

#include <unistd.h>

namespace hvd::launcher {
namespace {

std::string_view as_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

OutputHub::Channel::Channel(boost::asio::io_context& io, Stream stream, int ranks,
                            LineMux::Options options)
    : lines(stream, ranks, options),
      sink(io, stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO) {}

OutputHub::OutputHub(boost::asio::io_context& io, Options options)
    : out_(io, Stream::out, options.ranks, options.lines),
      err_(io, Stream::err, options.ranks, options.lines),
      tails_(static_cast<std::size_t>(options.ranks)) {
  if (!options.directory.empty()) files_.emplace(options.directory, options.ranks, options.append);
}

void OutputHub::start(OnRoom on_room, OnError on_error) {
  for (const Stream stream : {Stream::out, Stream::err}) {
    channel(stream).sink.start(
        on_room, [on_error, stream](std::error_code error) { on_error(stream, error); });
  }
}

void OutputHub::add(const Output& output) {
  const auto text = as_text(output.bytes);
  tails_.at(static_cast<std::size_t>(output.rank)).feed(output.stream, text);
  if (files_) files_->write(output.rank, output.stream, text);
  Channel& to = channel(output.stream);
  to.sink.write(to.lines.feed(output.rank, text, LineMux::WallClock::now()));
}

void OutputHub::finish() {
  for (const Stream stream : {Stream::out, Stream::err}) {
    Channel& to = channel(stream);
    to.sink.write(to.lines.finish(LineMux::WallClock::now()));
  }
}

void OutputHub::say(std::string_view lines) { err_.sink.write(lines); }

std::deque<Tail::Line> OutputHub::tail(int rank) const {
  return tails_.at(static_cast<std::size_t>(rank)).lines();
}

bool OutputHub::has_room() const noexcept {
  return out_.sink.queued() < kRoom && err_.sink.queued() < kRoom;
}

bool OutputHub::flushed() const noexcept {
  return out_.sink.queued() == 0 && err_.sink.queued() == 0;
}

}  // namespace hvd::launcher
