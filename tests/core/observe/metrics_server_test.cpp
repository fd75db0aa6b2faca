// Tests the endpoint over real sockets, also with clients that misbehave.
#include "observe/metrics_server.hpp"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd::observe {
namespace {

class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }

  /// Returns false when the server has reset the connection.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Returns what the server sends until it closes. Throws after 30 s.
  [[nodiscard]] std::string read_all() const {
    std::string text;
    const Deadline deadline = Clock::now() + std::chrono::seconds(30);
    for (;;) {
      pollfd ready{fd_.get(), POLLIN, 0};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) != 1) {
        throw std::runtime_error("the server neither answers nor closes: " + text);
      }
      std::array<char, 4096> block{};
      const ssize_t got = ::recv(fd_.get(), block.data(), block.size(), 0);
      if (got <= 0) return text;
      text.append(block.data(), static_cast<std::size_t>(got));
    }
  }
  /// Returns whether the server has closed the connection already, or has answered.
  [[nodiscard]] bool closed() const {
    pollfd ready{fd_.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }

 private:
  UniqueFd fd_;
};

class MetricsServerTest : public ::testing::Test {
 protected:
  std::string ask(const std::string& request) const {
    const Client client(server_->port());
    EXPECT_TRUE(client.send(request));
    return client.read_all();
  }
  static std::string body_of(const std::string& response) {
    return response.substr(response.find("\r\n\r\n") + 4);
  }

  std::atomic<int> asked_{0};
  EventLoop loop_;
  std::unique_ptr<MetricsServer> server_ =
      std::make_unique<MetricsServer>(loop_, MetricsOptions{.labels = {5, "job", "node"}}, [this] {
        ++asked_;
        Stats stats;
        stats.submitted = 42;
        return stats;
      });
};

TEST_F(MetricsServerTest, ServesBothForms) {
  EXPECT_NE(server_->port(), 0);
  const std::string metrics = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(metrics.rfind("HTTP/1.1 200 OK\r\n", 0), 0U) << metrics;
  EXPECT_NE(metrics.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            std::string::npos);
  EXPECT_NE(
      metrics.find("hvd_operations_submitted_total{job=\"job\",host=\"node\",rank=\"5\"} 42\n"),
      std::string::npos);
  EXPECT_NE(metrics.find("Content-Length: " + std::to_string(body_of(metrics).size())),
            std::string::npos);
  const std::string stats = ask("GET /stats.json?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(nlohmann::json::parse(body_of(stats))["submitted"], 42);
  EXPECT_EQ(asked_, 2);
}

TEST_F(MetricsServerTest, HeadHasNoBody) {
  const std::string head = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.rfind("HTTP/1.1 200 OK\r\n", 0), 0U) << head;
  EXPECT_EQ(body_of(head), "");
}

TEST_F(MetricsServerTest, RefusesWhatItDoesNotServe) {
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "404");
  EXPECT_EQ(ask("GET /metricsx HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "404");
  const std::string post = ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(post.substr(9, 3), "405");
  EXPECT_NE(post.find("Allow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").substr(9, 3), "413");
  EXPECT_EQ(asked_, 0);
}

TEST_F(MetricsServerTest, AnswersGarbageWithAnError) {
  EXPECT_EQ(ask("\x16\x03\x01 this is TLS, say\r\n\r\n").substr(9, 3), "400");
  EXPECT_EQ(ask("GET /metrics SMTP\r\n\r\n").substr(9, 3), "400");
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n").substr(9, 3), "400");
  EXPECT_EQ(ask(std::string(3000, '\0')).substr(9, 3), "400");
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "200");
}

TEST_F(MetricsServerTest, AnswersARequestThatIsTooLong) {
  const std::string header = "X-Long: " + std::string(200'000, 'x') + "\r\n";
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n" + header + "\r\n").substr(9, 3), "431");
  EXPECT_EQ(ask("GET /" + std::string(100'000, 'y') + " HTTP/1.1\r\n\r\n").substr(9, 3), "431");
}

TEST_F(MetricsServerTest, ASlowClientIsClosedAndHindersNobody) {
  const Client slow(server_->port());
  ASSERT_TRUE(slow.send("GET /met"));
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "200");
  EXPECT_EQ(slow.read_all(), "");
}

TEST_F(MetricsServerTest, AClientThatLeavesIsForgotten) {
  for (int i = 0; i < 100; ++i) {
    const Client client(server_->port());
    ASSERT_TRUE(client.send(i % 2 == 0 ? "GET /metrics HTTP/1.1\r\n\r\n" : "GET"));
  }
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "200");
}

TEST_F(MetricsServerTest, MoreConnectionsThanAllowedWait) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < MetricsServer::kMaxConnections; ++i) {
    idle.push_back(std::make_unique<Client>(server_->port()));
  }
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "200");
  int closed = 0;
  for (const auto& client : idle) closed += client->closed() ? 1 : 0;
  EXPECT_GT(closed, 0);  // it was served in the place of one of them
}

TEST_F(MetricsServerTest, ASourceThatThrowsIsAServerError) {
  MetricsServer broken(loop_, {}, []() -> Stats { throw std::runtime_error("no stats today"); });
  const Client client(broken.port());
  ASSERT_TRUE(client.send("GET /metrics HTTP/1.1\r\n\r\n"));
  const std::string response = client.read_all();
  EXPECT_EQ(response.substr(9, 3), "500");
  EXPECT_NE(response.find("no stats today"), std::string::npos);
}

TEST_F(MetricsServerTest, ClosesEverythingAtTheEnd) {
  const Client waiting(server_->port());
  ASSERT_TRUE(waiting.send("GET /met"));
  // The answer shows that the connection before it was accepted as well.
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").substr(9, 3), "200");
  const std::uint16_t port = server_->port();
  server_.reset();
  EXPECT_EQ(waiting.read_all(), "");
  EXPECT_THROW(Client{port}, std::runtime_error);
  // The same port can be used again at once.
  MetricsServer next(loop_, MetricsOptions{.port = port, .labels = {}}, [] { return Stats{}; });
  EXPECT_EQ(next.port(), port);
}

TEST_F(MetricsServerTest, NamesAPortThatIsTaken) {
  const MetricsOptions same{.port = server_->port(), .labels = {}};
  try {
    MetricsServer second(loop_, same, [] { return Stats{}; });
    ADD_FAILURE() << "listens twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_NE(std::string(error.what()).find(std::to_string(same.port)), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
  }
  try {
    MetricsServer third(loop_, MetricsOptions{.address = "localhost", .labels = {}},
                        [] { return Stats{}; });
    ADD_FAILURE() << "takes a name";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("localhost"), std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::observe
