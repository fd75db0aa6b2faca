#include "spawn/spawn_journal.hpp"

#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "plan/rank_environment.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

/// Removes from `text` the number before the next ':' or before the end, and returns it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty() && text.front() != ':') return std::nullopt;
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

UniqueFd take_descriptor(int fd) {
  close_on_exec(fd);
  return UniqueFd(fd);
}

}  // namespace

SpawnJournal& SpawnJournal::own() {
  static SpawnJournal journal;
  return journal;
}

SpawnJournal::SpawnJournal() {
  const Variables own = own_environment();
  std::string_view text = value_of(own, kSpawnVariable);
  const auto parent = take_number(text);
  const auto state = take_number(text);
  const auto report = take_number(text);
  // A program that such a process starts inherits the variable. Its parent is another one, and it
  // must ignore the variable.
  if (!parent || !state || !report || *parent != ::getppid()) return;
  report_ = take_descriptor(*report);
  path_ = decode_spawn_path(read_memory_file(take_descriptor(*state).get()));
}

SpawnJournal::Step SpawnJournal::begin(const SpawnSite& site) {
  const std::lock_guard lock(mutex_);
  Step step;
  step.index = outcomes_.size();
  if (depth_ == path_.size()) {
    step.path = path_;
    step.path.push_back({.call = static_cast<std::uint32_t>(step.index),
                         .rank = 0,
                         .file = site.file,
                         .line = site.line,
                         .earlier = outcomes_});
    outcomes_.emplace_back();
    return step;
  }
  const SpawnLevel& level = path_[depth_];
  if (step.index < level.call) {
    step.kind = Step::Kind::replay;
    step.outcome = level.earlier[step.index];
    outcomes_.push_back(step.outcome);
    return step;
  }
  if (level.file != site.file || level.line != site.line) {
    throw Error(Errc::invalid_argument,
                fmt::format("the program took another way than in the process that started this "
                            "one: call {} of hvd::spawn was at {}:{} there and is at {}:{} here",
                            level.call, level.file, level.line, site.file, site.line));
  }
  ++depth_;
  outcomes_.clear();
  step.kind = depth_ == path_.size() ? Step::Kind::run : Step::Kind::pass;
  step.rank = level.rank;
  return step;
}

bool SpawnJournal::ahead() {
  const std::lock_guard lock(mutex_);
  return depth_ < path_.size();
}

void SpawnJournal::record(std::size_t index, const SpawnOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  outcomes_.at(index) = outcome;
}

}  // namespace hvd::launcher
