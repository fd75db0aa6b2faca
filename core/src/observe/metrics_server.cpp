#include "observe/metrics_server.hpp"

#include <array>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/log.hpp>

namespace hvd::observe {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kRest{100};
constexpr std::size_t kMaxDrained = std::size_t{1} << 20;

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

Response make_response(http::status status, std::string_view type, std::string body) {
  Response response{status, 11};
  response.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response make_complaint(http::status status, std::string_view why) {
  return make_response(status, "text/plain; charset=utf-8", fmt::format("{}\n", why));
}

Response answer(const Request& request, const std::function<Stats()>& stats,
                const MetricLabels& labels) {
  const bool head = request.method() == http::verb::head;
  if (!head && request.method() != http::verb::get) {
    Response response = make_complaint(http::status::method_not_allowed, "only GET and HEAD");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  const beast::string_view target = request.target().substr(0, request.target().find('?'));
  if (target == "/metrics") {
    return make_response(http::status::ok, "text/plain; version=0.0.4; charset=utf-8",
                         to_prometheus(stats(), labels));
  }
  if (target == "/stats.json") {
    return make_response(http::status::ok, "application/json",
                         fmt::format("{}\n", to_json(stats())));
  }
  return make_complaint(http::status::not_found, "there are /metrics and /stats.json");
}

Response complaint_about(const error_code& error) {
  if (error == http::error::header_limit) {
    return make_complaint(http::status::request_header_fields_too_large, "the request is too long");
  }
  if (error == http::error::unexpected_body || error == http::error::body_limit) {
    return make_complaint(http::status::payload_too_large, "a request has no body here");
  }
  return make_complaint(http::status::bad_request, "this is not HTTP");
}

/// Serves one connection with one request and one answer. Its pending operations keep it alive.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Answer = std::function<Response(const Request&)>;

  Session(tcp::socket socket, Answer answer_to, std::function<void(Session*)> on_end)
      : stream_(std::move(socket)), answer_(std::move(answer_to)), on_end_(std::move(on_end)) {}

  void start() {
    stream_.expires_after(MetricsServer::kDeadline);  // for the whole connection
    parser_.header_limit(MetricsServer::kMaxHeaderBytes);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       self->on_read(error);
                     });
  }

  /// Closes the connection. Nothing is called back afterwards.
  void close() noexcept {
    on_end_ = nullptr;
    answer_ = nullptr;
    stream_.close();
  }

 private:
  void on_read(const error_code& error) {
    if (!answer_) return;
    if (!error) {
      respond();
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      send(complaint_about(error));
    } else {
      end();
    }
  }

  void respond() {
    try {
      send(answer_(parser_.get()));
    } catch (const std::exception& error) {
      send(make_complaint(http::status::internal_server_error, error.what()));
    }
  }

  void send(Response response) {
    response_ = std::move(response);
    serializer_.emplace(*response_);
    serializer_->split(parser_.is_header_done() && parser_.get().method() == http::verb::head);
    const auto then = [self = shared_from_this()](const error_code& error, std::size_t) {
      error ? self->end() : self->drain();
    };
    if (serializer_->split()) {
      http::async_write_header(stream_, *serializer_, then);
    } else {
      http::async_write(stream_, *serializer_, then);
    }
  }

  // Closing with unread bytes resets the connection, and the client may never see the answer.
  void drain() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    read_rest();
  }

  void read_rest() {
    stream_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](const error_code& error, std::size_t got) {
                              self->drained_ += got;
                              if (error || self->drained_ > kMaxDrained) return self->end();
                              self->read_rest();
                            });
  }

  void end() {
    stream_.close();
    if (on_end_) std::exchange(on_end_, nullptr)(this);
  }

  beast::tcp_stream stream_;
  Answer answer_;
  std::function<void(Session*)> on_end_;
  beast::flat_buffer buffer_{MetricsServer::kMaxHeaderBytes + 1024};
  http::request_parser<http::empty_body> parser_;
  std::optional<Response> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::array<char, 4096> rest_{};
  std::size_t drained_ = 0;
};

tcp::acceptor listen_on(asio::io_context& io, const MetricsOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.address, error);
  if (error) {
    throw Error(Errc::invalid_argument,
                fmt::format("'{}' is not a numeric address to serve metrics on", options.address));
  }
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor acceptor(io);
  // Without reuse, connections that this server closed would block its port for a minute.
  acceptor.open(endpoint.protocol(), error);
  if (!error) close_on_exec(acceptor.native_handle());
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    throw Error(Errc::resource, fmt::format("cannot serve metrics on {} port {}: {}",
                                            options.address, options.port, error.message()));
  }
  return acceptor;
}

}  // namespace

struct MetricsServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& event_loop, MetricsOptions own, std::function<Stats()> source)
      : loop(event_loop),
        options(std::move(own)),
        stats(std::move(source)),
        acceptor(listen_on(event_loop.io(), options)),
        rest(event_loop.io()),
        port(acceptor.local_endpoint().port()) {}

  void accept() {
    if (closed || accepting || sessions.size() >= kMaxConnections) return;
    accepting = true;
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      self->accepting = false;
      if (self->closed) return;
      // Without descriptors the connection stays in the queue, and a retry at once would spin.
      if (error) return self->accept_later();
      close_on_exec(socket.native_handle());
      try {
        self->serve(std::move(socket));
      } catch (const std::exception&) {  // memory is short
        return self->accept_later();
      }
      self->accept();
    });
  }

  void accept_later() {
    rest.expires_after(kRest);
    rest.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->accept();
    });
  }

  void serve(tcp::socket socket) {
    // The callbacks do not own this object; close() cancels them.
    auto session = std::make_shared<Session>(
        std::move(socket),
        [this](const Request& request) { return answer(request, stats, options.labels); },
        [this](Session* over) {
          sessions.erase(over->shared_from_this());
          accept();
        });
    sessions.insert(session);
    session->start();
  }

  void close() noexcept {
    closed = true;
    error_code ignored;
    acceptor.close(ignored);
    rest.cancel();
    for (const auto& session : sessions) session->close();
    sessions.clear();
  }

  EventLoop& loop;
  MetricsOptions options;
  std::function<Stats()> stats;
  tcp::acceptor acceptor;
  asio::steady_timer rest;
  std::uint16_t port;
  std::set<std::shared_ptr<Session>> sessions;
  bool accepting = false;
  bool closed = false;
};

MetricsServer::MetricsServer(EventLoop& loop, MetricsOptions options, std::function<Stats()> stats)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(stats))) {
  loop.run_sync([this] { impl_->accept(); });
}

MetricsServer::~MetricsServer() {
  impl_->loop.run_sync([this] { impl_->close(); });
}

std::uint16_t MetricsServer::port() const noexcept { return impl_->port; }

}  // namespace hvd::observe
