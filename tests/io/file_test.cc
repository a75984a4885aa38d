// File and the folder questions: what is read, what is refused, and with which words.
#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  std::string error_of(const std::string& path) {
    const auto file = io::File::open(path);
    return file.ok() ? "" : file.status().message();
  }
  TempFolder folder_;
};

TEST_F(FileTest, ReadsRanges) {
  const auto file = io::File::open(folder_.write("f", "0123456789")).value();
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(file->path(), folder_.path("f"));
  char raw[4] = {};
  ASSERT_TRUE(file->read(3, 4, raw).ok());
  EXPECT_EQ(std::string(raw, 4), "3456");
  const Buffer all = std::move(file->read(0, 10)).value();
  EXPECT_EQ(std::string(all.as<char>(), all.size()), "0123456789");
  EXPECT_TRUE(file->read(10, 0).ok());
}

TEST_F(FileTest, RefusesARangePastTheEndBeforeAllocating) {
  const auto file = io::File::open(folder_.write("f", "0123456789")).value();
  for (const auto& [offset, size] :
       {std::pair<std::uint64_t, std::size_t>{8, 3}, {11, 0}, {0, SIZE_MAX / 2}, {UINT64_MAX, 2}, {5, SIZE_MAX}}) {
    const auto read = file->read(offset, size);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), Code::io);
    EXPECT_THAT(read.status().message(), HasSubstr(folder_.path("f")));
    EXPECT_THAT(read.status().message(), HasSubstr("offset " + std::to_string(offset)));
  }
}

TEST_F(FileTest, NamesFileAndOffsetWhenTheFileHasShrunk) {
  const std::string path = folder_.write("f", std::string(100, 'x'));
  const auto file = io::File::open(path).value();
  ASSERT_EQ(::truncate(path.c_str(), 40), 0);
  const auto read = file->read(30, 50);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), HasSubstr(path + ": truncated: the file ends at offset 40"));
}

TEST_F(FileTest, RefusesWhatIsNotARegularFileWithoutBlocking) {
  ASSERT_EQ(::mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("loop", folder_.path("loop").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", folder_.path("dangling").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/zero", folder_.path("device").c_str()), 0);
  EXPECT_EQ(error_of(folder_.path("fifo")), folder_.path("fifo") + ": not a regular file but a FIFO (pipe)");
  EXPECT_EQ(error_of(folder_.path("device")), folder_.path("device") + ": not a regular file but a device");
  EXPECT_EQ(error_of(folder_.path("")), folder_.path("") + ": not a regular file but a directory");
  EXPECT_THAT(error_of(folder_.path("loop")), HasSubstr("symbolic links"));
  EXPECT_THAT(error_of(folder_.path("dangling")), HasSubstr("No such file"));
  EXPECT_THAT(error_of(folder_.path("absent")), HasSubstr(folder_.path("absent") + ": cannot open"));
  EXPECT_THAT(error_of(std::string("a\0b", 3)), HasSubstr("NUL"));
}

TEST_F(FileTest, FollowsSymbolicLinks) {
  folder_.write("blob", "data");
  ASSERT_EQ(::symlink("blob", folder_.path("link").c_str()), 0);
  EXPECT_EQ(io::read_text(folder_.path("link"), 10).value(), "data");
}

TEST_F(FileTest, ReadsFromSeveralThreads) {
  std::string bytes(1 << 16, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const auto file = io::File::open(folder_.write("f", bytes)).value();
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Buffer got = std::move(file->read(static_cast<std::uint64_t>(t) * 1000, 5000)).value();
      same[static_cast<std::size_t>(t)] = std::memcmp(got.data(), bytes.data() + t * 1000, 5000) == 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(same, ElementsAre(1, 1, 1, 1));
}

TEST_F(FileTest, LimitsTextFiles) {
  const std::string path = folder_.write("t", "12345");
  EXPECT_EQ(io::read_text(path, 5).value(), "12345");
  EXPECT_THAT(io::read_text(path, 4).status().message(), HasSubstr("5 bytes; a file of this kind may have at most 4"));
}

TEST_F(FileTest, AnswersQuestionsAboutFolders) {
  folder_.write("b", "");
  folder_.write("a", "");
  ASSERT_EQ(::symlink("nowhere", folder_.path("c").c_str()), 0);
  ASSERT_EQ(::mkdir(folder_.path("d").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("d", folder_.path("e").c_str()), 0);
  EXPECT_THAT(io::list_directory(folder_.path("")).value(), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_TRUE(io::exists(folder_.path("c")));
  EXPECT_FALSE(io::exists(folder_.path("z")));
  EXPECT_TRUE(io::is_directory(folder_.path("e")));
  EXPECT_FALSE(io::is_directory(folder_.path("a")));
  EXPECT_THAT(io::list_directory(folder_.path("z")).status().message(), HasSubstr("cannot list the folder"));
}

TEST(File, FolderOfAName) {
  EXPECT_EQ(io::folder_of("a"), ".");
  EXPECT_EQ(io::folder_of("/a"), "/");
  EXPECT_EQ(io::folder_of("x/y/a"), "x/y");
}

}  // namespace
}  // namespace swordfish
