#include "progress.hpp"

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace mnist {

namespace {

constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kEraseToEnd = "\033[K";

/// Under hvdrun, stdout is a pipe, and HVD_TERMINAL is set when hvdrun itself writes to a terminal.
bool on_terminal() { return isatty(STDOUT_FILENO) == 1 || std::getenv("HVD_TERMINAL") != nullptr; }

}  // namespace

Progress::Progress(bool speaks) : speaks_(speaks), bar_(speaks && on_terminal()) {}

void Progress::step(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss) {
  if (!bar_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedraw && done < total) return;
  drawn_ = now;
  const auto filled = static_cast<std::size_t>(total > 0 ? kWidth * done / total : kWidth);
  // The carriage return comes last, because hvdrun passes on whole lines, which it may end.
  fmt::print("epoch {}/{} [{}{}] {:3}%  loss {:.4f}{}\r", epoch, epochs, std::string(filled, '='),
             std::string(kWidth - filled, ' '), total > 0 ? 100 * done / total : 100, loss,
             kEraseToEnd);
  std::fflush(stdout);
}

void Progress::line(const std::string& text) {
  if (!speaks_) return;
  fmt::print("{}{}\n", text, bar_ ? kEraseToEnd : "");
  std::fflush(stdout);
}

}  // namespace mnist
