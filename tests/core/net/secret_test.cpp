#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/internal/secret.hpp>

#include "expect_error.hpp"
#include "net/crypto.hpp"

namespace hvd {
namespace {

using test::expect_error;

/// A folder that is gone after the test.
class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "/hvd-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& content, mode_t mode) {
    const std::string path = folder_ / "secret";
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }

  std::filesystem::path folder_;
};

TEST(Secret, RandomOnesDiffer) {
  const Secret a = Secret::random();
  EXPECT_NE(a.bytes(), Secret::random().bytes());
  EXPECT_FALSE(a.empty());
  EXPECT_TRUE(Secret().empty());
}

TEST(Secret, TravelsThroughAnInheritableDescriptor) {
  const Secret secret = Secret::random();
  const UniqueFd fd = secret.to_inheritable_fd();
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  for (int time = 0; time < 2; ++time) {  // reading does not move the descriptor
    EXPECT_EQ(Secret::from_fd(fd.get()).bytes(), secret.bytes());
  }
  EXPECT_LT(::pwrite(fd.get(), "x", 1, 0), 0) << "sealed";
  EXPECT_LT(::ftruncate(fd.get(), 0), 0) << "sealed";
}

TEST(Secret, BadDescriptorsAreRefused) {
  expect_error(Errc::unauthenticated, [] { static_cast<void>(Secret::from_fd(-1)); });
  const UniqueFd empty(::memfd_create("empty", MFD_CLOEXEC));
  expect_error(Errc::unauthenticated, [&] { static_cast<void>(Secret::from_fd(empty.get())); });
}

TEST_F(SecretFile, OfMode0600IsRead) {
  const std::string content(32, 's');
  const Secret secret = Secret::from_file(write(content, 0600));
  for (const std::byte b : secret.bytes()) EXPECT_EQ(b, std::byte{'s'});
}

TEST_F(SecretFile, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0700, 0666}) {
    const std::string path = write(std::string(32, 's'), mode);
    const std::string text =
        expect_error(Errc::unauthenticated, [&] { static_cast<void>(Secret::from_file(path)); });
    EXPECT_THAT(text, testing::HasSubstr(path));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("ssss")));
  }
}

// As Kubernetes mounts it: secret -> ..data/secret, ..data -> ..2026_11_22.
TEST_F(SecretFile, MayBeALinkToAFileThatIsSafe) {
  std::filesystem::create_directory(folder_ / "..2026_11_22");
  std::filesystem::create_directory_symlink("..2026_11_22", folder_ / "..data");
  std::filesystem::rename(write(std::string(32, 's'), 0600), folder_ / "..2026_11_22/secret");
  const std::string link = folder_ / "secret";
  std::filesystem::create_symlink("..data/secret", link);
  EXPECT_EQ(Secret::from_file(link).bytes()[31], std::byte{'s'});
}

TEST_F(SecretFile, MayNotBeALinkToAnythingElse) {
  const std::string readable = write(std::string(32, 's'), 0640);
  const std::string of_another_user = "/proc/1/status";
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  int number = 0;
  for (const std::string& target : {readable, of_another_user, fifo, folder_.string(),
                                    std::string("/dev/null"), std::string("no such file")}) {
    const std::string link = folder_ / ("link" + std::to_string(++number));
    std::filesystem::create_symlink(target, link);
    const std::string text =
        expect_error(Errc::unauthenticated, [&] { static_cast<void>(Secret::from_file(link)); });
    EXPECT_THAT(text, testing::HasSubstr(link)) << target;
  }
}

TEST_F(SecretFile, OfAnotherSizeOrKindIsRefused) {
  for (const std::size_t size : {0U, 31U, 33U, 64U}) {
    const std::string path = write(std::string(size, 's'), 0600);
    expect_error(Errc::unauthenticated, [&] { static_cast<void>(Secret::from_file(path)); });
  }
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, (folder_ / "none").string(), folder_.string()}) {
    expect_error(Errc::unauthenticated, [&] { static_cast<void>(Secret::from_file(path)); });
  }
}

// RFC 4231, test case 2.
TEST(Hmac, MatchesThePublishedVector) {
  const Bytes key = test::bytes_of("Jefe");
  const Bytes message = test::bytes_of("what do ya want for nothing?");
  std::string hex;
  for (const std::byte b : net::hmac_sha256(key, message)) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(b));
    hex += two;
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace hvd
