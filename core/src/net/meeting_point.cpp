#include <utility>

#include <hvd/core/address.hpp>
#include <hvd/core/meeting_point.hpp>

#include "net/acceptor.hpp"
#include "net/dial.hpp"
#include "net/handshake.hpp"

namespace hvd {

struct MeetingPoint::Impl {
  EventLoop& loop;
  std::shared_ptr<net::Acceptor> acceptor;
};

MeetingPoint::MeetingPoint(EventLoop& loop, const std::string& address, const Identity& identity,
                           OnStream on_stream)
    : impl_(std::make_unique<Impl>(Impl{loop, nullptr})) {
  net::Listener listener(Address::parse(address));
  impl_->acceptor = std::make_shared<net::Acceptor>(
      loop, identity, [on_stream = std::move(on_stream)](UniqueFd stream, const net::Hello&) {
        on_stream(std::move(stream));
      });
  loop.run_sync([&] { impl_->acceptor->listen(std::move(listener)); });
}

MeetingPoint::~MeetingPoint() {
  impl_->loop.run_sync([this] { impl_->acceptor->close(); });
}

UniqueFd go_to_meeting(const std::string& address, const Identity& identity, std::string_view label,
                       Deadline deadline) {
  net::DialOptions options;
  options.address = Address::parse(address);
  options.peer = net::kAnyRank;
  options.label = label;
  options.deadline = deadline;
  const net::Interrupt never;
  return net::dial(options, identity, never);
}

}  // namespace hvd
