// Tests the files and rows of a source, its errors, and the split of its rows.
#include <cmath>

#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include <hvd/estimator/parquet_source.hpp>

#include "folder.hpp"

namespace hvd::parquet_source_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

torch::Tensor rows_from(std::int64_t first, std::int64_t count) {
  return torch::arange(first, first + count, torch::kInt64);
}

void write_rows(const std::string& path, std::int64_t first, std::int64_t count,
                std::int64_t rows_per_group = 4) {
  const torch::Tensor rows = rows_from(first, count);
  write_parquet(path, {"row", "pixels", "held_out"},
                {rows, torch::rand({count, 2, 3}), rows.remainder(3) == 0},
                {.rows_per_group = rows_per_group});
}

std::string open_error(const std::string& uri, Errc code) {
  const Error error = error_of([&] { (void)ParquetSource::open(uri); });
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

TEST(ParquetSource, OfAFolderIsItsFilesInOrder) {
  const Folder folder;
  write_rows(folder / "part-1.parquet", 10, 5);
  write_rows(folder / "part-0.parquet", 0, 10);
  write_rows(folder / "more/part-2.parquet", 15, 0);
  write_rows(folder / "_temporary/part-9.parquet", 0, 1);
  write_content(folder / "_SUCCESS", "");
  write_content(folder / ".part-0.parquet.crc", "x");
  write_content(folder / "readme.txt", "x");

  const auto source = ParquetSource::open(folder.path().string());
  EXPECT_THAT(source.files(), ElementsAre(folder / "more/part-2.parquet", folder / "part-0.parquet",
                                          folder / "part-1.parquet"));
  EXPECT_EQ(source.rows(), 15);
  EXPECT_THAT(source.row_groups(), testing::Contains(4));
  ASSERT_EQ(source.schema().size(), 3u);
  EXPECT_EQ(source.schema()[0].name, "row");
  EXPECT_EQ(source.schema()[0].type, "int64");
  EXPECT_THAT(source.schema()[1].type, HasSubstr("list<"));

  const auto one = ParquetSource::open("file://" + (folder / "part-1.parquet"));
  EXPECT_THAT(one.files(), ElementsAre("file://" + (folder / "part-1.parquet")));
  EXPECT_THAT(one.row_groups(), ElementsAre(4, 1));
}

TEST(ParquetSource, ThatIsNotThereOrNotParquetIsNamed) {
  const Folder folder;
  EXPECT_THAT(open_error(folder / "none", Errc::resource), HasSubstr("no such file or folder"));
  EXPECT_THAT(open_error(folder.path().string(), Errc::invalid_argument),
              HasSubstr(folder.path().string() + ": no *.parquet in it"));
  write_content(folder / "a.parquet", "");
  EXPECT_THAT(open_error(folder.path().string(), Errc::protocol),
              HasSubstr((folder / "a.parquet") + " is damaged, or not Parquet"));
  write_content(folder / "a.parquet", std::string(5000, 'x'));
  (void)open_error(folder.path().string(), Errc::protocol);
  write_rows(folder / "a.parquet", 0, 100);
  const std::string good = content_of(folder / "a.parquet");
  write_content(folder / "a.parquet", good.substr(0, good.size() / 2));
  (void)open_error(folder.path().string(), Errc::protocol);
  fs::remove(folder / "a.parquet");
  fs::create_symlink("elsewhere", folder / "a.parquet");
  (void)open_error(folder / "a.parquet", Errc::resource);
}

TEST(ParquetSource, RequiresColumnsOfEveryFile) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 4);
  write_parquet(folder / "b.parquet", {"row", "held_out"},
                {rows_from(4, 2), torch::zeros({2}, torch::kBool)});
  write_parquet(folder / "c.parquet", {"row", "pixels"}, {rows_from(4, 2), torch::rand({2, 5})},
                {.fixed_size_lists = true});
  const auto why = [](const std::string& path, const Columns& columns) {
    return std::string(error_of([&] { ParquetSource::open(path).require(columns); }).what());
  };
  ParquetSource::open(folder.path().string()).require({.features = {"row"}});
  ParquetSource::open(folder / "a.parquet")
      .require({.features = {"pixels"}, .labels = {"row"}, .input_shapes = {{1, 2, 3}}});
  EXPECT_THAT(
      why(folder.path().string(), {.features = {"pixels"}}),
      HasSubstr((folder / "b.parquet") + ": no column 'pixels' (there are: 'row', 'held_out')"));
  EXPECT_THAT(why(folder / "c.parquet", {.features = {"pixels"}, .input_shapes = {{2, 3}}}),
              HasSubstr("column 'pixels': 5 values per row do not fill the shape [2, 3]"));
}

TEST(ParquetSource, RequiresLabelsOfOneKindInAllFiles) {
  const Folder folder;
  const std::string path = folder.path().string();
  const torch::Tensor x = torch::rand({2});
  const torch::Tensor whole = torch::tensor({1, 2}, torch::kInt64);
  const torch::Tensor fractions = torch::tensor({0.7, 1.2}, torch::kFloat64);
  const auto write = [&](const std::string& name, const torch::Tensor& y, const torch::Tensor& z) {
    write_parquet(folder / name, {"x", "y", "z"}, {x, y, z});
  };
  const torch::Tensor list = torch::ones({2, 3}, torch::kInt32);
  write("a.parquet", whole, list);
  write("b.parquet", whole.to(torch::kInt32), list.to(torch::kBool));
  const Columns columns{.features = {"x"}, .labels = {"y", "z"}};
  ParquetSource::open(path).require(columns);  // all integers become int64

  const auto why = [&] {
    const Error error = error_of([&] { ParquetSource::open(path).require(columns); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return std::string(error.what());
  };
  write("c.parquet", fractions, list);
  EXPECT_THAT(why(), HasSubstr((folder / "c.parquet") + ": label column 'y' is double, and int64 " +
                               "in " + (folder / "a.parquet")));
  write("c.parquet", whole, list.to(torch::kFloat32));
  EXPECT_THAT(why(), HasSubstr("label column 'z' is list<"));
  // Features have one type whatever the files store.
  write("c.parquet", fractions, list);
  ParquetSource::open(path).require({.features = {"y"}, .labels = {"z"}});
}

std::vector<std::int64_t> chosen(const Selection& selection, std::int64_t rows) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (selection.contains(row)) numbers.push_back(row);
  }
  return numbers;
}

TEST(ParquetSplit, ByFractionIsTheSameOnEveryRankAndComplete) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 2000, 300);
  const auto source = ParquetSource::open(folder.path().string());
  const auto [training, validation] = split(source, {.fraction = 0.25}, 3);
  const auto again = split(ParquetSource::open(folder.path().string()), {.fraction = 0.25}, 3);
  EXPECT_EQ(chosen(validation, 2000), chosen(again.second, 2000));
  EXPECT_NE(chosen(validation, 2000), chosen(split(source, {.fraction = 0.25}, 4).second, 2000));
  EXPECT_EQ(training.rows() + validation.rows(), 2000);
  EXPECT_NEAR(static_cast<double>(validation.rows()), 500, 100);
  std::int64_t of_groups = 0;
  for (std::size_t group = 0; group < source.row_groups().size(); ++group) {
    of_groups += validation.rows_of_group(group);
    EXPECT_EQ(training.rows_of_group(group) + validation.rows_of_group(group),
              source.row_groups()[group]);
  }
  EXPECT_EQ(of_groups, validation.rows());
  EXPECT_EQ(static_cast<std::int64_t>(chosen(training, 2000).size()), training.rows());
  EXPECT_EQ(split(source, {}).second.rows(), 0);
  EXPECT_EQ(split(source, {}).first.rows(), 2000);
}

TEST(ParquetSplit, ByColumnTakesTheRowsThatSaySo) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 10);
  write_rows(folder / "b.parquet", 10, 0);
  write_rows(folder / "c.parquet", 10, 5);
  const auto source = ParquetSource::open(folder.path().string());
  const auto [training, validation] = split(source, {.column = "held_out"});
  EXPECT_THAT(chosen(validation, 15), ElementsAre(0, 3, 6, 9, 12));
  EXPECT_EQ(training.rows(), 10);

  write_parquet(folder / "numbers.parquet", {"v"},
                {torch::tensor({-1.0, 0.0, 0.5, 2.0, std::nan("")})});
  const auto numbers = ParquetSource::open(folder / "numbers.parquet");
  EXPECT_THAT(chosen(split(numbers, {.column = "v"}).second, 5), ElementsAre(2, 3));
}

TEST(ParquetSplit, RefusesWhatCannotBe) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 10);
  const auto source = ParquetSource::open(folder.path().string());
  const auto why = [&](const Validation& validation) {
    const Error error = error_of([&] { (void)split(source, validation); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_THAT(why({.fraction = 1}), HasSubstr("a fraction of 1"));
  EXPECT_THAT(why({.fraction = -0.1}), HasSubstr("a fraction of -0.1"));
  EXPECT_THAT(why({.fraction = std::nan("")}), HasSubstr("a fraction of nan"));
  EXPECT_THAT(why({.fraction = 0.1, .column = "held_out"}), HasSubstr("one of them"));
  EXPECT_THAT(why({.column = "absent"}), HasSubstr("no column 'absent'"));
  EXPECT_THAT(why({.column = "pixels"}), HasSubstr("neither bool nor a number"));
}

TEST(ParquetWriter, RefusesWhatDoesNotFit) {
  const Folder folder;
  const auto why = [&](const std::vector<std::string>& names,
                       const std::vector<torch::Tensor>& tensors) {
    return std::string(
        error_of([&] { write_parquet(folder / "a.parquet", names, tensors); }).what());
  };
  EXPECT_THAT(why({}, {}), HasSubstr("0 names for 0 tensors"));
  EXPECT_THAT(why({"a", "b"}, {torch::ones({2}), torch::ones({3})}),
              HasSubstr("'b' has not the rows"));
  EXPECT_THAT(why({"a"}, {torch::ones({2}, torch::kComplexFloat)}), HasSubstr("ComplexFloat"));
  // Nothing touches these elements, so they take no memory.
  EXPECT_THAT(why({"a"}, {torch::empty({2, std::int64_t{1} << 30}, torch::kInt8)}),
              HasSubstr("write fewer rows_per_group"));
  EXPECT_THAT(why({"a"}, {torch::empty({0, std::int64_t{1} << 31}, torch::kInt8)}),
              EndsWith("too much for a row group"));
  EXPECT_THAT(fs::directory_iterator(folder.path()) == fs::directory_iterator(), true);
}

}  // namespace
}  // namespace hvd::parquet_source_test
