#include <utility>
#include <vector>

#include "net/group_link.hpp"
#include "net/tree_channel.hpp"
#include "net/tree_frame.hpp"

namespace hvd::net {
namespace {

class TreeRoot final : public ControlChannel, private TreeLink::Listener {
 public:
  TreeRoot(EventLoop& loop, const TreeRoutes& routes,
           std::vector<std::shared_ptr<GroupLink>> children)
      : loop_(loop), routes_(routes), by_child_(static_cast<std::size_t>(routes.size())) {
    for (auto& child : children) {
      by_child_[static_cast<std::size_t>(child->peer())] = std::move(child);
    }
  }
  ~TreeRoot() override {
    loop_.run_sync([this] { close(); });
  }

  void start(ControlChannel::Listener& listener) override {
    listener_ = &listener;
    for (const auto& child : by_child_) {
      if (child) child->start(*this);
    }
  }

  void send(int to, Bytes message) override {
    if (to <= 0 || to >= routes_.size()) refuse_recipient(to);
    check_length(message);
    GroupLink& child = *by_child_[static_cast<std::size_t>(routes_.towards(0, to))];
    if (!child.push(to, message)) child.give_up("it does not read what is said to it");
  }

  void close() noexcept override {
    closed_ = true;
    for (const auto& child : by_child_) {
      if (child) child->close();
    }
  }

 private:
  void on_frame(TreeLink& link, std::span<const std::byte> payload) override {
    const GroupFrame frame = decode_group_frame(payload, link.peer(), routes_.end_of(link.peer()));
    for (const int rank : frame.ranks.ranks()) {
      if (!closed_) listener_->on_message(rank, frame.message);
    }
  }
  void on_end(TreeLink& link, const std::string& cause) override {
    listener_->on_lost(link.peer(), cause);
  }

  EventLoop& loop_;
  const TreeRoutes routes_;
  std::vector<std::shared_ptr<GroupLink>> by_child_;  // by rank; null where there is none
  ControlChannel::Listener* listener_ = nullptr;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<ControlChannel> make_tree_root(const TreePlace& place) {
  std::vector<std::shared_ptr<GroupLink>> children;
  for (const int child : place.routes.children(0)) {
    children.push_back(
        std::make_shared<GroupLink>(place.loop, child, place.open(child), place.max_backlog));
  }
  return std::make_unique<TreeRoot>(place.loop, place.routes, std::move(children));
}

}  // namespace hvd::net
