#include "spawn_output.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "block_signals.hpp"
#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {

SpawnOutput::SpawnOutput(const SpawnOptions& options, int first_rank, int nprocs)
    : out_{options.output,
           LineMux(Stream::out, first_rank + nprocs,
                   {.timestamps = options.prefix_output_with_timestamp}),
           {}},
      err_{options.error,
           LineMux(Stream::err, first_rank + nprocs,
                   {.timestamps = options.prefix_output_with_timestamp}),
           {}},
      over_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!over_) throw LaunchError(kExitResource, error_text(errno));
  for (Taken* const taken : {&out_, &err_}) {
    if (!taken->take) continue;
    for (int local_rank = 0; local_rank < nprocs; ++local_rank) {
      taken->sources.push_back({make_pipe(), first_rank + local_rank});
      ::fcntl(taken->sources.back().pipe.read.get(), F_SETFL, O_NONBLOCK);
    }
  }
}

SpawnOutput::~SpawnOutput() { finish(); }

int SpawnOutput::descriptor(Stream stream, int local_rank) const {
  const Taken& taken = stream == Stream::out ? out_ : err_;
  if (taken.sources.empty()) return stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
  return taken.sources.at(static_cast<std::size_t>(local_rank)).pipe.write.get();
}

void SpawnOutput::start() {
  if (out_.sources.empty() && err_.sources.empty()) return;
  for (Taken* const taken : {&out_, &err_}) {
    for (Source& source : taken->sources) source.pipe.write.reset();
  }
  const BlockSignals blocked;  // they are for the program's threads
  thread_ = std::thread([this] { read_all(); });
}

void SpawnOutput::finish() noexcept {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(over_.get(), &one, sizeof one);
  thread_.join();
}

void SpawnOutput::read_all() noexcept {
  bool over = false;
  bool taking = true;  // a function that throws is not called again; the pipes are still emptied
  const auto now = [] { return LineMux::WallClock::now(); };
  while (!over) {
    std::vector<pollfd> fds = {{.fd = over_.get(), .events = POLLIN, .revents = 0}};
    std::vector<std::pair<Taken*, Source*>> read;
    for (Taken* const taken : {&out_, &err_}) {
      for (Source& source : taken->sources) {
        if (!source.pipe.read) continue;
        fds.push_back({.fd = source.pipe.read.get(), .events = POLLIN, .revents = 0});
        read.emplace_back(taken, &source);
      }
    }
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    over = fds[0].revents != 0;
    for (std::size_t i = 0; i < read.size(); ++i) {
      // At the end everything that lies in a pipe is read.
      if (fds[i + 1].revents == 0 && !over) continue;
      auto& [taken, source] = read[i];
      std::array<char, 1 << 16> buffer;
      for (;;) {
        const ssize_t size = ::read(source->pipe.read.get(), buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR) continue;
        if (size == 0) source->pipe.read.reset();
        if (size <= 0) break;
        try {
          const auto lines = taken->lines.feed(
              source->rank, {buffer.data(), static_cast<std::size_t>(size)}, now());
          if (taking && !lines.empty()) taken->take(lines);
        } catch (...) {
          taking = false;
        }
      }
    }
  }
  for (Taken* const taken : {&out_, &err_}) {
    try {
      const auto rest = taken->lines.finish(now());
      if (taking && taken->take && !rest.empty()) taken->take(rest);
    } catch (...) {
      taking = false;
    }
  }
}

}  // namespace hvd::launcher
