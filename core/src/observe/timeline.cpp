#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/start_thread.hpp>
#include <hvd/core/internal/timeline.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/timeline.hpp>

#include "observe/json_array_file.hpp"
#include "observe/trace_buffer.hpp"
#include "observe/trace_format.hpp"

namespace hvd {
namespace {

using observe::JsonArrayFile;
using observe::TraceBuffer;
using observe::TraceEvent;
using observe::TraceLanes;
using std::chrono::nanoseconds;

constexpr std::size_t kLeastFileLimit = std::size_t{64} << 10;

/// Returns what to add to a steady time to get the time since 1970. It is the tightest of a few
/// readings, since a thread may be suspended between reading two clocks.
nanoseconds steady_to_unix() {
  nanoseconds best{0};
  nanoseconds narrowest = nanoseconds::max();
  for (int i = 0; i < 5; ++i) {
    const auto before = Clock::now().time_since_epoch();
    const auto unix_time = std::chrono::duration_cast<nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const auto after = Clock::now().time_since_epoch();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = unix_time - (before + narrowest / 2);
  }
  return best;
}

/// Writes events to the file and names their lanes. One thread at a time may call it.
class Writer {
 public:
  Writer(const TimelineOptions& options, const std::string& path)
      : rank_(options.rank),
        lanes_(options.max_lanes),
        file_(path,
              observe::format_origin(
                  {options.rank, options.host, steady_to_unix(), options.clock_offset}),
              std::max(options.max_file_bytes, kLeastFileLimit)) {
    const bool fits = file_.append(observe::format_process_name(rank_, options.host)) &&
                      file_.append(observe::format_process_order(rank_)) &&
                      file_.append(observe::format_lane_name(rank_, 0, "marks"));
    if (!fits) throw Error(Errc::internal, "the timeline has no room for its beginning");
    file_.flush();
  }

  /// Writes events; `missing` more had no room in memory. Returns how many had no room in the file.
  [[nodiscard]] std::uint64_t write(const TraceBuffer& events, std::uint64_t missing) {
    std::uint64_t dropped = 0;
    const bool was_full = full_;
    events.for_each([&](const TraceEvent& event) {
      full_ = full_ || !write(event);
      if (full_) ++dropped;
    });
    unreported_ += missing + dropped;
    if (!was_full) note_dropped();  // a full file gets the note at the end
    file_.flush();
    return dropped;
  }

  /// Writes the note about further dropped events.
  void close() {
    note_dropped();
    file_.flush();
  }

 private:
  [[nodiscard]] bool write(const TraceEvent& event) {
    if (event.kind == TraceEvent::Kind::mark) {
      return file_.append(observe::format_event(event, rank_, 0));
    }
    const TraceLanes::Lane lane = lanes_.lane_of(event.tensor);
    if (lane.fresh || lane.shared) {
      const std::string name =
          lane.fresh ? std::string(event.tensor) : fmt::format("several tensors {}", lane.number);
      if (!file_.append(observe::format_lane_name(rank_, lane.number, name))) return false;
    }
    return file_.append(observe::format_event(event, rank_, lane.number));
  }

  void note_dropped() {
    if (unreported_ == 0) return;
    file_.append_to_full(observe::format_dropped(rank_, Clock::now(), unreported_));
    unreported_ = 0;
  }

  int rank_;
  TraceLanes lanes_;
  JsonArrayFile file_;
  bool full_ = false;
  std::uint64_t unreported_ = 0;  // dropped since the last note
};

}  // namespace

struct Timeline::Impl {
  explicit Impl(TimelineOptions own) : options(std::move(own)) {}

  void record(const TraceEvent& event);
  void run(Writer& writer);
  void write(Writer& writer, const TraceBuffer& events, std::uint64_t lost);

  const TimelineOptions options;

  std::mutex control;  // held by start() and stop(); taken before `mutex`
  std::thread thread;

  std::mutex mutex;
  std::condition_variable wake;
  std::string path;
  bool recording = false;  // like `on_`, but exact
  bool ending = false;
  bool flush_asked = false;
  TraceBuffer filling{0};
  TraceBuffer draining{0};              // used by the thread while it runs
  std::uint64_t missing = 0;            // events without room since the last swap
  std::atomic<std::uint64_t> drops{0};  // since construction

  bool broken = false;  // used by the thread; the file cannot be written
};

void Timeline::Impl::record(const TraceEvent& event) {
  bool ask = false;
  {
    const std::lock_guard lock(mutex);
    if (!recording) return;
    if (!filling.push(event)) {
      ++missing;
      drops.fetch_add(1, std::memory_order_relaxed);
    }
    ask = !flush_asked && filling.half_full();
    if (ask) flush_asked = true;
  }
  if (ask) wake.notify_one();
}

void Timeline::Impl::run(Writer& writer) {
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    wake.wait_for(lock, options.flush_interval, [this] { return ending || flush_asked; });
    last = ending;
    flush_asked = false;
    std::swap(filling, draining);
    const std::uint64_t lost = std::exchange(missing, 0);
    lock.unlock();
    if (!draining.empty() || lost > 0) write(writer, draining, lost);
    draining.clear();
    lock.lock();
  }
}

void Timeline::Impl::write(Writer& writer, const TraceBuffer& events, std::uint64_t lost) {
  if (!broken) {
    try {
      drops.fetch_add(writer.write(events, lost), std::memory_order_relaxed);
      return;
    } catch (const std::exception& error) {
      // A full disk must not end a training. The file stays as it was last written.
      broken = true;
      log(LogLevel::warn, options.rank, fmt::format("the timeline ends here: {}", error.what()));
    }
  }
  events.for_each([this](const TraceEvent&) { drops.fetch_add(1, std::memory_order_relaxed); });
}

Timeline::Timeline(TimelineOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Timeline::~Timeline() { stop(); }

void Timeline::start(const std::string& path) {
  const std::lock_guard control(impl_->control);
  if (impl_->thread.joinable()) {
    throw Error(Errc::invalid_argument,
                fmt::format("the timeline {} is being written: stop it first", impl_->path));
  }
  auto writer = std::make_unique<Writer>(impl_->options, path);
  impl_->broken = false;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->filling = TraceBuffer(impl_->options.buffer_bytes);
    impl_->draining = TraceBuffer(impl_->options.buffer_bytes);
    impl_->ending = impl_->flush_asked = false;
    impl_->missing = 0;
  }
  auto body = [impl = impl_.get(), writer = std::move(writer)] {
    impl->run(*writer);
    try {
      if (!impl->broken) writer->close();
    } catch (const std::exception& error) {
      log(LogLevel::warn, impl->options.rank, error.what());
    }
  };
  impl_->thread = detail::start_thread("hvd-timeline", std::move(body));
  const std::lock_guard lock(impl_->mutex);
  impl_->path = path;
  impl_->recording = true;
  on_.store(true, std::memory_order_relaxed);
}

void Timeline::stop() noexcept {
  const std::lock_guard control(impl_->control);
  if (!impl_->thread.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    on_.store(false, std::memory_order_relaxed);
    impl_->recording = false;
    impl_->ending = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
  const std::lock_guard lock(impl_->mutex);
  impl_->path.clear();
  impl_->filling = TraceBuffer(0);
  impl_->draining = TraceBuffer(0);
}

std::string Timeline::path() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->path;
}

std::uint64_t Timeline::dropped() const noexcept {
  return impl_->drops.load(std::memory_order_relaxed);
}

void Timeline::record_span(std::string_view tensor, std::string_view phase, Clock::time_point begin,
                           Clock::time_point end, const TimelineArgs& args) {
  impl_->record({TraceEvent::Kind::span, tensor, phase, args.algorithm, begin, end, args.dtype,
                 args.shape, args.bytes, args.fused});
}

void Timeline::record_mark(std::string_view name, Clock::time_point at) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::mark;
  event.phase = name;
  event.begin = event.end = at;
  impl_->record(event);
}

namespace {

/// Inserts ".word" before the suffix of a file name, or makes a name.
std::string with_word(std::string_view name, std::string_view word) {
  if (name.empty() || name.back() == '/') return fmt::format("{}timeline.{}.json", name, word);
  const std::size_t slash = name.rfind('/');
  const std::size_t file = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.rfind('.');
  const bool has_suffix = dot != std::string_view::npos && dot > file;
  const std::string_view stem = has_suffix ? name.substr(0, dot) : name;
  return fmt::format("{}.{}{}", stem, word, has_suffix ? name.substr(dot) : ".json");
}

}  // namespace

std::string timeline_path(std::string_view name, int rank) {
  return with_word(name, fmt::format("rank{}", rank));
}

std::string timeline_of_generation(std::string_view name, std::uint32_t generation) {
  return with_word(name, fmt::format("generation{}", generation));
}

}  // namespace hvd
