#include "training/progress.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "store/environment.hpp"

namespace hvd::detail {

namespace {

constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kEraseToEnd = "\033[K";

std::string text_of(const RowMeans& means, const char* prefix) {
  std::string text = fmt::format("  {}loss {:.4f}", prefix, means.loss);
  for (const auto& [name, value] : means.metrics) {
    text += fmt::format("  {}{} {:.4f}", prefix, name, value);
  }
  return text;
}

}  // namespace

Progress::Progress(bool speaks, int verbose)
    : speaks_(speaks && verbose > 0), bar_(speaks_ && verbose == 1 && on_terminal()) {}

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

void Progress::epoch(const EpochHistory& history, int epochs) {
  line(fmt::format("epoch {}/{}{}{}  {:.1f} s", history.epoch, epochs, text_of(history.train, ""),
                   history.validation.rows > 0 ? text_of(history.validation, "val_") : "",
                   history.seconds));
}

void Progress::line(const std::string& text) {
  if (!speaks_) return;
  fmt::print("{}{}\n", text, bar_ ? kEraseToEnd : "");
  std::fflush(stdout);
}

}  // namespace hvd::detail
