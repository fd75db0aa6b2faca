#include <mutex>
#include <vector>

#include <hvd/ops/internal/context_follower.hpp>

namespace hvd::detail {
namespace {

struct Followers {
  std::mutex mutex;  // the bodies of hvd::threads make followers too
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
