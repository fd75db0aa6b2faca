#include <utility>
#include <vector>

#include <hvd/core/error.hpp>

#include "net/group_link.hpp"
#include "net/tree_channel.hpp"
#include "net/tree_frame.hpp"

namespace hvd::net {
namespace {

class TreeRelay final : public ControlChannel, private TreeLink::Listener {
 public:
  TreeRelay(EventLoop& loop, int rank, std::shared_ptr<GroupLink> up,
            std::vector<std::unique_ptr<TreeLink>> members)
      : loop_(loop), rank_(rank), up_(std::move(up)), members_(std::move(members)) {}
  ~TreeRelay() override {
    loop_.run_sync([this] { close(); });
  }

  void start(ControlChannel::Listener& listener) override {
    listener_ = &listener;
    up_->start(*this);
    for (const auto& member : members_) member->start(*this);
  }

  void send(int to, Bytes message) override {
    if (to != 0 && !is_member(to)) refuse_recipient(to);
    check_length(message);
    if (to != 0) {
      member(to).send(encode_member_frame(true, message));
    } else if (!up_->push(rank_, message)) {
      up_->give_up("it does not read what is said to it");
    }
  }

  void close() noexcept override {
    up_->close();
    for (const auto& member : members_) member->close();
  }

 private:
  // Members are the ranks behind this one.
  [[nodiscard]] bool is_member(int rank) const {
    return rank > rank_ && rank <= rank_ + static_cast<int>(members_.size());
  }
  [[nodiscard]] TreeLink& member(int rank) {
    return *members_[static_cast<std::size_t>(rank - rank_ - 1)];
  }

  void on_frame(TreeLink& link, std::span<const std::byte> payload) override {
    if (link.peer() == 0) {
      from_root(payload);
    } else {
      from_member(link.peer(), payload);
    }
  }

  /// The members first: it may tell this rank to leave.
  void from_root(std::span<const std::byte> payload) {
    const int end = rank_ + 1 + static_cast<int>(members_.size());
    const GroupFrame frame = decode_group_frame(payload, rank_, end);
    Bytes passed_on;
    for (const int rank : frame.ranks.ranks()) {
      if (rank == rank_) continue;
      if (passed_on.empty()) passed_on = encode_member_frame(false, frame.message);
      member(rank).send(passed_on);
    }
    if (frame.ranks.contains(rank_)) listener_->on_message(0, frame.message);
  }

  void from_member(int rank, std::span<const std::byte> payload) {
    const MemberFrame frame = decode_member_frame(payload);
    if (frame.for_relay) {
      listener_->on_message(rank, frame.message);
    } else if (!up_->push(rank, frame.message)) {
      throw Error(Errc::protocol, "it says more than rank 0 reads");
    }
  }

  void on_end(TreeLink& link, const std::string& cause) override {
    listener_->on_lost(link.peer(), cause);
  }

  EventLoop& loop_;
  const int rank_;
  std::shared_ptr<GroupLink> up_;
  std::vector<std::unique_ptr<TreeLink>> members_;  // by rank
  ControlChannel::Listener* listener_ = nullptr;
};

}  // namespace

std::unique_ptr<ControlChannel> make_tree_relay(const TreePlace& place) {
  auto up = std::make_shared<GroupLink>(place.loop, 0, place.open(0), place.max_backlog);
  std::vector<std::unique_ptr<TreeLink>> members;
  for (const int member : place.routes.children(place.rank)) {
    members.push_back(
        std::make_unique<TreeLink>(place.loop, member, place.open(member), place.max_backlog));
  }
  return std::make_unique<TreeRelay>(place.loop, place.rank, std::move(up), std::move(members));
}

}  // namespace hvd::net
