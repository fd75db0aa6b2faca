#include "status/status_service.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLiveInterval{1'000};
constexpr milliseconds kPlainInterval{10'000};
/// The time that the answers may take. A rank that computes answers at once, and a rank that hangs
/// never answers.
constexpr milliseconds kPatience{400};

struct Screen {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

Screen screen() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

}  // namespace

StatusService::StatusService(boost::asio::io_context& io, const Options& options, const Plan& plan,
                             const std::string& job_id, Hooks hooks)
    : on_(options.status),
      live_(::isatty(STDERR_FILENO) == 1),
      whole_lines_(options.prefix),
      interval_(options.status_interval.value_or(live_ ? kLiveInterval : kPlainInterval)),
      hooks_(std::move(hooks)),
      board_(plan, job_id, Clock::now()),
      round_(io),
      answer_(io),
      server_(std::in_place, io, job_id, [this](std::function<void(std::string)> answer) {
        waiting_.push_back(std::move(answer));
        ask();
      }) {
  if (!on_) return;
  hooks_.show(fmt::format("hvdrun: this is job {}\n", job_id));
  arm();
}

void StatusService::arm() {
  round_.expires_after(interval_);
  round_.async_wait([this](boost::system::error_code error) {
    if (error || stopped_) return;
    show_due_ = true;
    ask();
    arm();
  });
}

/// Asks the agents. A shell that asks soon after another gets the same answers.
void StatusService::ask() {
  if (stopped_) return answer_all();
  if (Clock::now() - asked_ < kPatience) return;
  asked_ = Clock::now();
  hooks_.ask();
  answer_.expires_after(kPatience);
  answer_.async_wait([this](boost::system::error_code error) {
    if (!error) answer_all();
  });
}

void StatusService::heard(const RankUsage& frame) {
  board_.used(frame, Clock::now());
  check_heard();
}

void StatusService::heard(const RankAnswer& frame) {
  board_.said(frame, Clock::now());
  check_heard();
}

void StatusService::check_heard() {
  if (!board_.all_heard_since(asked_)) return;
  answer_.cancel();
  answer_all();
}

void StatusService::answer_all() {
  asked_ = {};
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& answer : waiting) answer(board_.table(Clock::now()));
  if (std::exchange(show_due_, false) && !stopped_) show();
}

std::vector<std::string> StatusService::live_lines() const {
  const Screen size = screen();
  const auto now = Clock::now();
  constexpr std::size_t kForOutput = 5;  // rows for the ranks' output and for the waiting ranks
  const std::size_t room = size.rows > 2 * kForOutput ? size.rows - kForOutput : kForOutput;
  std::vector<std::string> lines = board_.lines(now, room - 1);
  const auto waits = board_.waits(now);
  lines.insert(lines.end(), waits.begin(),
               waits.begin() + std::min<std::ptrdiff_t>(std::ssize(waits), 3));
  for (std::string& line : lines) {
    if (line.size() >= size.columns) line.resize(size.columns - 1);  // no line may wrap
  }
  return lines;
}

/// Shows nothing while a stopped terminal or a slow reader has not taken what was shown before. The
/// text that waits would grow without bound, and ranks wait when there is too much of it.
void StatusService::show() {
  if (!hooks_.shown()) return;
  if (!live_) {
    hooks_.show(fmt::format("hvdrun: {}\n", board_.summary(Clock::now())));
    return;
  }
  if (within_line_) return;
  std::string text;
  if (drawn_ > 0) text += fmt::format("\x1b[{}A\x1b[J", drawn_);
  const auto lines = live_lines();
  for (const std::string& line : lines) text += line + "\n";
  drawn_ = lines.size();
  hooks_.show(text);
}

void StatusService::clear_live_lines(std::string_view written) {
  const std::size_t drawn = std::exchange(drawn_, 0);
  if (drawn > 0) hooks_.show(fmt::format("\x1b[{}A\x1b[J", drawn));
  if (!whole_lines_ && !written.empty()) within_line_ = written.back() != '\n';
}

void StatusService::stop() {
  if (std::exchange(stopped_, true)) return;
  round_.cancel();
  answer_.cancel();
  answer_all();
  drawn_ = 0;  // the last lines stay on the screen
  server_.reset();
}

}  // namespace hvd::launcher
