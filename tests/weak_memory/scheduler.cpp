#include "scheduler.hpp"

#include <exception>
#include <utility>

namespace hvd::weak {
namespace {

constexpr std::size_t kStack = std::size_t{256} << 10;
constexpr std::size_t kPoints = 5000;  // no program here has as many

Scheduler* exploring = nullptr;
bool in_fiber = false;

}  // namespace

Scheduler::Scheduler(const Program& program, const Mutation& mutation, const Limits& limits)
    : program_(program),
      mutation_(mutation),
      limits_(limits),
      choose_([this](std::size_t of) { return choose(of); }),
      machine_(choose_),
      fibers_(program.threads.size()) {
  for (Fiber& fiber : fibers_) fiber.stack.reset(new char[kStack]);
}

Scheduler* Scheduler::current() noexcept { return in_fiber ? exploring : nullptr; }

Exploration Scheduler::run() {
  exploring = this;
  do {
    execute();
    result_.complete = result_.failure.empty() && !next();
  } while (result_.failure.empty() && !result_.complete && result_.executions < limits_.executions);
  if (!result_.failure.empty()) repeat();
  exploring = nullptr;
  result_.states = visited_.size();
  return result_;
}

/// Runs the wrong execution again, to record its operations. Loads have points only where they had
/// them the first time, so the choices mean the same.
void Scheduler::repeat() {
  for (const auto& [location, writer] : new_writers_) writers_[location] &= ~writer;
  const std::string first = std::exchange(result_.failure, {});
  repeats_ = true;
  execute();
  if (result_.failure == first) return;
  result_.failure =
      first + " (did not repeat: " + (result_.failure.empty() ? "no failure" : result_.failure) +
      ")";
}

std::size_t Scheduler::choose(std::size_t of) {
  if (of == 1) return 0;
  if (made_ == choices_.size()) choices_.push_back({0, deviations_ < limits_.deviations ? of : 1});
  const std::size_t taken = choices_[made_++].taken;
  if (taken >= of) {
    result_.failure = "an execution does not repeat";
    return 0;
  }
  if (taken != 0) ++deviations_;
  return taken;
}

/// Moves to the next sequence of choices. Returns false after the last one.
bool Scheduler::next() {
  if (!std::exchange(new_writers_, {}).empty()) {  // loads before may have needed a point
    choices_.clear();
    visited_.clear();
    return true;
  }
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of) choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

bool Scheduler::is_new() {
  const std::size_t left = limits_.deviations - deviations_;
  const auto [at, first] = visited_.try_emplace(hash(), left);
  if (first) return true;
  if (at->second >= left) return false;
  at->second = left;
  return true;
}

void Scheduler::execute() {
  ++result_.executions;
  machine_.reset();
  forget_shared();
  program_.set_up();
  made_ = deviations_ = points_ = running_ = 0;
  for (Fiber& fiber : fibers_) {
    fiber.begun = fiber.ended = false;
    fiber.mutex = fiber.futex = fiber.progress = 0;
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &home_;
    ::makecontext(&fiber.context, &Scheduler::enter, 0);
  }
  while (result_.failure.empty()) {
    const std::vector<std::size_t> ready = runnable();
    if (ready.empty()) break;
    if (made_ == choices_.size() && !repeats_ && !is_new()) return;
    running_ = ready[choose(ready.size())];
    fibers_[running_].begun = in_fiber = true;
    ::swapcontext(&home_, &fibers_[running_].context);
    in_fiber = false;
    if (++points_ > kPoints) result_.failure = "does not end";
  }
  if (!result_.failure.empty()) return;
  for (const Fiber& fiber : fibers_) {
    if (!fiber.ended) result_.failure = "threads wait for ever";
  }
  if (result_.failure.empty() && program_.at_end) program_.at_end();
}

/// Returns the threads that can go on, the one that ran last first.
std::vector<std::size_t> Scheduler::runnable() const {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    const std::size_t at = (running_ + i) % fibers_.size();
    const Fiber& fiber = fibers_[at];
    if (fiber.ended || fiber.futex != 0) continue;
    if (fiber.mutex != 0 && machine_.locked(fiber.mutex)) continue;
    ready.push_back(at);
  }
  return ready;
}

std::uint64_t Scheduler::hash() const {
  std::uint64_t sum = machine_.hash();
  for (const Fiber& fiber : fibers_) {
    sum = mix(mix(sum, fiber.futex), fiber.mutex);
    sum = mix(sum, (fiber.begun ? 1U : 0U) + (fiber.ended ? 2U : 0U));
  }
  return sum;
}

void Scheduler::enter() {
  Scheduler& self = *exploring;
  Fiber& fiber = self.fibers_[self.running_];
  try {
    self.program_.threads[self.running_]();
  } catch (const std::exception& error) {
    self.result_.failure = error.what();
  }
  fiber.ended = true;
}

void Scheduler::leave() {
  in_fiber = false;
  ::swapcontext(&fibers_[running_].context, &home_);
}

void Scheduler::point() { leave(); }

void Scheduler::load_point(std::uint64_t location) {
  const auto at = writers_.find(location);
  if (at != writers_.end() && (at->second & ~(1U << running_)) != 0) point();
}

void Scheduler::writes(std::uint64_t location) {
  unsigned& writers = writers_[location];
  const unsigned writer = 1U << running_;
  if ((writers & writer) == 0) new_writers_.emplace_back(location, writer);
  writers |= writer;
}

void Scheduler::fail(const std::string& why) {
  result_.failure = why;
  leave();  // for ever
}

int Scheduler::order(const void* site, Site::Kind kind, int given) {
  result_.sites.try_emplace(site, Site{kind, given});
  return mutation_.sites.count(site) != 0 ? mutation_.order : given;
}

void Scheduler::lock(std::uint64_t mutex) {
  fibers_[running_].mutex = mutex;
  point();
  fibers_[running_].mutex = 0;
  machine_.lock(running_, mutex);
}

bool Scheduler::futex_wait(Machine::Place word, std::uint64_t expected) {
  point();
  const bool sleeps = machine_.latest(word) == expected;
  machine_.observe(running_, static_cast<std::uint64_t>(sleeps) + 1);
  note(sleeps ? "sleeps" : "does not sleep", word.at, expected, 0, nullptr);
  if (!sleeps) return false;
  fibers_[running_].futex = word.at;
  leave();
  return true;
}

void Scheduler::forget() { machine_.forget(running_, ++fibers_[running_].progress); }

void Scheduler::futex_wake(std::uint64_t word) {
  point();
  machine_.observe(running_, word);
  note("wakes", word, 0, 0, nullptr);
  for (Fiber& fiber : fibers_) {
    if (fiber.futex == word) fiber.futex = 0;
  }
}

Exploration explore(const Program& program, const Mutation& mutation, const Limits& limits) {
  return Scheduler(program, mutation, limits).run();
}

}  // namespace hvd::weak
