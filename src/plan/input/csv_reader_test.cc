#include "plan/input/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/temporary_folder.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

// All rows after the first; the error ends them.
Result<Rows> RowsOf(const std::string& text) {
  auto csv = CsvOf(text);
  if (!csv) return std::unexpected(csv.error());
  Rows rows;
  for (;;) {
    const auto next = csv->Next();
    if (!next) return std::unexpected(next.error());
    if (!*next) return rows;
    rows.emplace_back();
    for (std::size_t column = 0; column < csv->columns().size(); ++column) rows.back().push_back(csv->Field(column));
  }
}

TEST(CsvReader, ReadsFieldsByRow) {
  EXPECT_EQ(RowsOf("a,b\n1,2\n,\n x ,y"), (Rows{{"1", "2"}, {"", ""}, {" x ", "y"}}));
  EXPECT_EQ(RowsOf("a\n"), Rows{});
}

TEST(CsvReader, PassesOverByteOrderMarkCarriageReturnsAndEmptyLines) {
  EXPECT_EQ(RowsOf("\xEF\xBB\xBF\r\n\r\na,b\r\n\r\n1,2\r\n\n\r\n3,4\r\n\r\n"), (Rows{{"1", "2"}, {"3", "4"}}));
  EXPECT_THAT(CsvOf("\xEF\xBB\xBF"
                    "a,b\n")
                  ->columns(),
              ElementsAre("a", "b"));
}

TEST(CsvReader, Quotes) {
  EXPECT_EQ(RowsOf("a,b\n\"1,5\",\"say \"\"no\"\"\"\n\"\",\"\"\n"), (Rows{{"1,5", "say \"no\""}, {"", ""}}));
  EXPECT_EQ(RowsOf("a\n\"\"\nx\n"), (Rows{{""}, {"x"}}));
  EXPECT_EQ(ErrorOf(RowsOf("a,b\n1,2\n\"1,2\n")), "x.csv:3: a quote that does not end");
  EXPECT_EQ(ErrorOf(RowsOf("a\n1\"2\"\n")), "x.csv:2: a quote in the middle of a field");
  EXPECT_EQ(ErrorOf(RowsOf("a\n\"1\"2\n")), "x.csv:2: a quote in the middle of a field");
  EXPECT_EQ(ErrorOf(RowsOf("a\n\"1\" \"2\"\n")), "x.csv:2: a quote in the middle of a field");
}

TEST(CsvReader, WrongRowsSayTheirLine) {
  EXPECT_EQ(ErrorOf(RowsOf("a,b\n\n1,2\n1\n")), "x.csv:4: 1 field where the first line names 2 columns");
  EXPECT_EQ(ErrorOf(RowsOf("a,b\n1,2,3\n")), "x.csv:2: 3 fields where the first line names 2 columns");
  EXPECT_EQ(ErrorOf(RowsOf(std::string("a,b\n1,2\n1,\0\n", 13))), "x.csv:3: a byte 0; is this a CSV file?");
  EXPECT_THAT(ErrorOf(RowsOf("a\n" + std::string(CsvReader::kLongestLine + 1, 'x'))), HasSubstr("longer than 1 MiB"));
  EXPECT_EQ(RowsOf("a\n" + std::string(CsvReader::kLongestLine, 'x') + "\n1\n")->size(), 2u);
}

TEST(CsvReader, RowsThatSpanPiecesOfTheFile) {
  // Pieces of 64 KiB end within fields, quotes and line ends.
  std::string text = "number,text\n";
  for (int i = 0; i < 30'000; ++i) text += std::to_string(i) + ",\"" + std::string(i % 7, 'x') + "\"\"\"\r\n";
  const auto rows = RowsOf(text);
  ASSERT_EQ(rows->size(), 30'000u);
  for (int i = 0; i < 30'000; ++i)
    ASSERT_EQ((*rows)[i], (std::vector<std::string>{std::to_string(i), std::string(i % 7, 'x') + "\""})) << i;
}

TEST(CsvReader, ColumnsHaveDifferentNames) {
  EXPECT_EQ(ErrorOf(CsvOf("a,b,a\n")), "x.csv:1: column \"a\" is named twice");
  EXPECT_EQ(ErrorOf(CsvOf("")), "x.csv is empty; the first line must name the columns");
  EXPECT_EQ(ErrorOf(CsvOf("\n\r\n")), "x.csv is empty; the first line must name the columns");
  const auto csv = CsvOf("a,b\n");
  EXPECT_EQ(csv->Column("b"), 1u);
  EXPECT_TRUE(csv->Has("a"));
  EXPECT_FALSE(csv->Has("c"));
  EXPECT_EQ(ErrorOf(csv->Column("c")), "x.csv has no column \"c\"");
}

Result<double> NumberOf(const std::string& field, double least = 0, double most = 1e9) {
  auto csv = CsvOf("duty,other\n\"" + field + "\",\n");
  if (!csv->Next()) abort();
  return csv->Number(0, least, most);
}

TEST(CsvReader, Numbers) {
  EXPECT_EQ(NumberOf("12"), 12);
  EXPECT_EQ(NumberOf("0.5"), 0.5);
  EXPECT_EQ(NumberOf("1e3"), 1000);
  EXPECT_EQ(NumberOf("-3", -5), -3);
  for (const char* wrong : {"", "x", "1x", " 1", "1 ", "nan", "inf", "-inf", "1e999", "+1", "0x10", "1,5"})
    EXPECT_EQ(NumberOf(wrong).error().code, EINVAL) << wrong;
  EXPECT_EQ(ErrorOf(NumberOf("1x")), "x.csv:2: duty: \"1x\" is not a number");
  EXPECT_EQ(ErrorOf(NumberOf("-1")), "x.csv:2: duty: \"-1\" is below 0");
  EXPECT_EQ(ErrorOf(NumberOf("101", 0, 100)), "x.csv:2: duty: \"101\" is above 100");
}

TEST(CsvReader, MessagesShowNoControlCharactersAndNoBooks) {
  EXPECT_EQ(QuotedPiece("a\x1b[2Jb\x7f"), "\"a?[2Jb?\"");
  EXPECT_EQ(QuotedPiece("\xc3\xa4\xc3"), "\"\xc3\xa4?\"");
  EXPECT_EQ(Printable("a\xc3\xa4", 2), "a...");  // whole characters only
  EXPECT_EQ(QuotedPiece(std::string(1000, 'x')), "\"" + std::string(40, 'x') + "...\"");
}

TEST(CsvReader, FilesThatCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(CsvReader::Open(folder.path() + "/no/such.csv").error().code, ENOENT);
  EXPECT_EQ(CsvReader::Open(folder.path()).error().code, EISDIR);
  const std::string path = folder.File("x.csv", "a\n1\n");
  auto csv = CsvReader::Open(path);
  ASSERT_TRUE(csv) << csv.error().Text();
  EXPECT_EQ(csv->Next(), true);
  EXPECT_EQ(csv->Field(0), "1");
  EXPECT_EQ(csv->name(), path);
}

}  // namespace
}  // namespace tessera::plan
