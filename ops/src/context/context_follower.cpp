#include <mutex>
#include <vector>

#include <hvd/ops/internal/context_follower.hpp>

#include "context/thread_context.hpp"

namespace hvd::detail {
namespace {

struct Followers {
  std::mutex mutex;  // other threads than that of `elastic_run` may make and destroy followers
  std::vector<ContextFollower*> all;

  std::vector<ContextFollower*> list() {
    const std::lock_guard lock(mutex);
    return all;
  }
};

Followers& followers() {
  static Followers instance;
  return instance;
}

}  // namespace

ContextFollower::ContextFollower() {
  if (ThreadContext::exists()) return;  // it uses the context of its thread, which has no successor
  const std::lock_guard lock(followers().mutex);
  followers().all.push_back(this);
}

ContextFollower::~ContextFollower() {
  const std::lock_guard lock(followers().mutex);
  std::erase(followers().all, this);
}

void detach_followers() noexcept {
  for (ContextFollower* const one : followers().list()) one->detach();
}

void attach_followers(Context& context) {
  for (ContextFollower* const one : followers().list()) one->attach(context);
}

}  // namespace hvd::detail
