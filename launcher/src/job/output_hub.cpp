#include "job/output_hub.hpp"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/internal/text.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr std::array<const char*, 2> kNames = {"stdout", "stderr"};

/// Returns an invalid descriptor, and sets errno, if the file cannot be opened.
UniqueFd open_file(const std::filesystem::path& path, bool append) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    errno = error.value();
    return {};
  }
  const int how = append ? O_APPEND : O_TRUNC;
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | how | O_CLOEXEC, 0666));
}

}  // namespace

OutputFiles::OutputFiles(Options options, FileWriter& writer, FileWriter::OnError on_error)
    : options_(std::move(options)), writer_(writer), on_error_(std::move(on_error)) {}

OutputFiles::Files& OutputFiles::files_of(int process) {
  const auto index = static_cast<std::size_t>(process);
  if (index >= files_.size()) files_.resize(index + 1);
  return files_[index];
}

std::string OutputFiles::path(int process, std::size_t stream) const {
  return fmt::format("{}/{}.{}/{}", options_.directory, options_.process, process, kNames[stream]);
}

void OutputFiles::create(int process) {
  Files& files = files_of(process);
  for (std::size_t stream = 0; stream < kNames.size(); ++stream) {
    const auto name = path(process, stream);
    UniqueFd file = open_file(name, options_.append);
    if (!file) refuse_system(fmt::format("cannot write {}", in_quotes(name)));
    files.numbers[stream] = writer_.add(std::move(file), on_error_);
  }
  files.open = files.opened_before = true;
}

void OutputFiles::write(int process, Stream stream, std::string_view bytes) {
  Files& files = files_of(process);
  if (!files.open) {
    const bool append = options_.append || files.opened_before;
    for (std::size_t each = 0; each < kNames.size(); ++each) {
      auto open = [name = path(process, each), append] { return open_file(name, append); };
      files.numbers[each] = writer_.add(std::move(open), on_error_);
    }
    files.open = files.opened_before = true;
  }
  writer_.write(files.numbers[static_cast<std::size_t>(stream)], bytes);
}

void OutputFiles::close(int process) {
  const auto index = static_cast<std::size_t>(process);
  if (index >= files_.size() || !std::exchange(files_[index].open, false)) return;
  for (const std::size_t number : files_[index].numbers) writer_.close(number);
}

OutputHub::Channel::Channel(boost::asio::io_context& io, Stream stream, const Options& options,
                            FileWriter& writer)
    : lines(stream, options.ranks, options.lines),
      sink(io, stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO, writer) {}

OutputHub::OutputHub(boost::asio::io_context& io, Options options)
    : writer_(io),
      out_(io, Stream::out, options, writer_),
      err_(io, Stream::err, options, writer_),
      tails_(static_cast<std::size_t>(options.ranks), Tail(options.tail_lines)) {
  if (options.files.directory.empty()) return;
  files_.emplace(options.files, writer_,
                 [this, name = in_quotes(options.files.directory)](std::error_code error) {
                   if (on_error_) on_error_(name, error);
                 });
  for (int rank = 0; rank < options.ranks; ++rank) files_->create(rank);
}

void OutputHub::start(OnRoom on_room, OnError on_error) {
  on_error_ = std::move(on_error);
  out_.sink.start(on_room, [this](std::error_code error) { on_error_("stdout", error); });
  err_.sink.start(on_room, [this](std::error_code error) { on_error_("stderr", error); });
  writer_.start(std::move(on_room));
}

void OutputHub::add(const Output& output) {
  const auto text = detail::text_of(output.bytes);
  const auto rank = static_cast<std::size_t>(output.rank);
  if (rank >= tails_.size()) tails_.resize(rank + 1);  // a new worker of an elastic job
  tails_[rank].feed(output.stream, text);
  if (files_) files_->write(output.rank, output.stream, text);
  Channel& to = channel(output.stream);
  to.sink.write(to.lines.feed(output.rank, text, LineMux::WallClock::now()));
  if (rank < ended_.size() && ended_[rank]) ended(output.rank);
}

void OutputHub::ended(int process) {
  const auto index = static_cast<std::size_t>(process);
  if (index >= ended_.size()) ended_.resize(index + 1);
  ended_[index] = true;
  for (const Stream stream : {Stream::out, Stream::err}) {
    Channel& to = channel(stream);
    to.sink.write(to.lines.flush(process, LineMux::WallClock::now()));
  }
  if (files_) files_->close(process);
}

void OutputHub::finish() {
  for (const Stream stream : {Stream::out, Stream::err}) {
    Channel& to = channel(stream);
    to.sink.write(to.lines.finish(LineMux::WallClock::now()));
  }
  if (!files_) return;
  for (std::size_t process = 0; process < tails_.size(); ++process) {
    files_->close(static_cast<int>(process));
  }
}

void OutputHub::say(std::string_view lines) { err_.sink.write(lines); }

std::deque<Tail::Line> OutputHub::tail(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < tails_.size() ? tails_[index].lines() : std::deque<Tail::Line>();
}

bool OutputHub::has_room() const noexcept {
  return out_.sink.queued() < kRoom && err_.sink.queued() < kRoom && writer_.queued() < kRoom;
}

bool OutputHub::flushed() const noexcept {
  return out_.sink.queued() == 0 && err_.sink.queued() == 0 && writer_.idle();
}

}  // namespace hvd::launcher
