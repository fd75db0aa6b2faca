// timeline_child FILE records from three threads and prints its progress until it is killed.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <hvd/core/internal/timeline.hpp>

namespace {

void record(hvd::Timeline& timeline, int thread) {
  for (long i = 0;; ++i) {
    const auto now = hvd::Clock::now();
    const std::string name = "layer." + std::to_string(i % 100) + ".\"weight\"";
    timeline.complete(name, hvd::timeline_phase::kQueue, now, now + std::chrono::microseconds(5));
    if (thread != 0) {
      if (i % 64 == 0) std::this_thread::yield();
    } else if (i % 500 == 0) {
      std::printf("event %ld\n", i);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  hvd::TimelineOptions options;
  options.host = "node";
  options.flush_interval = std::chrono::milliseconds(1);
  options.buffer_bytes = 64 << 10;
  options.max_file_bytes = 4 << 20;
  hvd::Timeline timeline(options);
  std::vector<std::thread> threads;
  timeline.start(argv[1]);
  for (int i = 1; i < 3; ++i) threads.emplace_back([&timeline, i] { record(timeline, i); });
  record(timeline, 0);
}
