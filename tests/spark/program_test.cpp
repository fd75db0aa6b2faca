// Tests the result that a program returns and the files that it gets, both through environment
// variables.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/spark.hpp>

#include "result.hpp"

namespace hvd {
namespace {

using testing::HasSubstr;

/// Sets a variable of this process during its lifetime.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

template <typename Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return Error(Errc::internal, "");
}

class ResultTest : public testing::Test {
 protected:
  [[nodiscard]] std::string content() const {
    std::string text(64, '\0');
    const ssize_t size = ::pread(memory_.get(), text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }

  UniqueFd memory_{::memfd_create("result", 0)};
};

TEST_F(ResultTest, NobodyAsked) { EXPECT_FALSE(set_result("{}")); }

TEST_F(ResultTest, TheLastOneCounts) {
  const Variable variable("HVD_RESULT_FD", std::to_string(memory_.get()));
  EXPECT_TRUE(set_result(R"({"accuracy": 0.5})"));
  EXPECT_EQ(content(), R"(j{"accuracy": 0.5})");
  const std::array<std::byte, 2> bytes = {std::byte{1}, std::byte{0}};
  EXPECT_TRUE(set_result(bytes));
  EXPECT_EQ(content(), std::string("b\1\0", 3));
  EXPECT_TRUE(set_result(std::string_view()));
  EXPECT_EQ(content(), "j");
}

TEST_F(ResultTest, ResultsOfAnySizeThatIsAllowed) {
  const std::vector<std::byte> large(std::size_t{3} << 20, std::byte{7});
  write_result(memory_.get(), ResultKind::bytes, large);
  EXPECT_EQ(::lseek(memory_.get(), 0, SEEK_END), static_cast<off_t>(large.size()) + 1);
  // Only the size is read.
  const std::span<const std::byte> too_large(large.data(), kMaxResult + 1);
  const Error error = error_of([&] { write_result(memory_.get(), ResultKind::bytes, too_large); });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
}

TEST_F(ResultTest, ADescriptorThatIsNoneIsNamed) {
  for (const char* value : {"", "x", "-1", "7x", "987654"}) {
    const Variable variable("HVD_RESULT_FD", value);
    const Error error = error_of([] { set_result("{}"); });
    EXPECT_EQ(error.code(), Errc::invalid_argument) << value;
    EXPECT_THAT(error.what(), HasSubstr("HVD_RESULT_FD"));
  }
}

TEST(ArrowPartitionTest, NoTable) { EXPECT_FALSE(ArrowPartition::of_this_rank().has_value()); }

TEST(ArrowPartitionTest, FilesAndTheirRows) {
  const Variable variable("HVD_ARROW_PARTITION", "12 /dev/fd/7\n0 /a b/c.arrow\n");
  const auto partition = ArrowPartition::of_this_rank();
  ASSERT_TRUE(partition.has_value());
  ASSERT_EQ(partition->files.size(), 2U);
  EXPECT_EQ(partition->files[0].path, "/dev/fd/7");
  EXPECT_EQ(partition->files[1].path, "/a b/c.arrow");
  EXPECT_EQ(partition->rows(), 12);
  const Variable empty("HVD_ARROW_PARTITION", "");
  EXPECT_TRUE(ArrowPartition::of_this_rank()->files.empty());
}

TEST(ArrowPartitionTest, ALineThatIsSomethingElseIsQuoted) {
  for (const char* line : {"x", "1", "1 ", "-1 /a", "1/a", "99999999999999999999 /a", "\n"}) {
    const Variable variable("HVD_ARROW_PARTITION", line);
    const Error error = error_of([] { (void)ArrowPartition::of_this_rank(); });
    EXPECT_EQ(error.code(), Errc::invalid_argument) << line;
    EXPECT_THAT(error.what(), HasSubstr("HVD_ARROW_PARTITION"));
  }
}

}  // namespace
}  // namespace hvd
