#include <utility>

#include "net/tree_channel.hpp"
#include "net/tree_frame.hpp"
#include "net/tree_link.hpp"

namespace hvd::net {
namespace {

class TreeMember final : public ControlChannel, private TreeLink::Listener {
 public:
  TreeMember(const TreePlace& place, int relay)
      : loop_(place.loop), link_(place.loop, relay, place.open(relay), place.max_backlog) {}
  ~TreeMember() override {
    loop_.run_sync([this] { close(); });
  }

  void start(ControlChannel::Listener& listener) override {
    listener_ = &listener;
    link_.start(*this);
  }
  void send(int to, Bytes message) override {
    if (to != 0 && to != link_.peer()) refuse_recipient(to);
    check_length(message);
    link_.send(encode_member_frame(to != 0, message));
  }
  void close() noexcept override { link_.close(); }

 private:
  void on_frame(TreeLink& link, std::span<const std::byte> payload) override {
    const MemberFrame frame = decode_member_frame(payload);
    listener_->on_message(frame.for_relay ? link.peer() : 0, frame.message);
  }
  void on_end(TreeLink& link, const std::string& cause) override {
    listener_->on_lost(link.peer(), cause);
  }

  EventLoop& loop_;
  TreeLink link_;
  ControlChannel::Listener* listener_ = nullptr;
};

}  // namespace

std::unique_ptr<ControlChannel> make_tree_member(const TreePlace& place) {
  return std::make_unique<TreeMember>(place, place.routes.parent(place.rank));
}

}  // namespace hvd::net
