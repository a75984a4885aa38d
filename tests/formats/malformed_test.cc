// Broken variants of good checkpoints, as ../shared/fixtures/make_malformed.py writes them: each is refused with a message that
// says why and where, and the untouched controls load. Left out where that script (or python3) is not there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "io/file.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

Status open_and_load(const std::string& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  EXPECT_FALSE(checkpoint->layers().empty()) << path;
  for (std::size_t i = 0; i < checkpoint->layers().size(); ++i) {
    const std::int64_t experts = std::max<std::int64_t>(1, checkpoint->layers()[i].experts);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      if (const auto tensor = checkpoint->load(i, expert); !tensor.ok()) return tensor.status();
      if (const auto bias = checkpoint->load_bias(i, expert); !bias.ok()) return bias.status();
    }
  }
  return {};
}

// Is one of the strings of case[key] in `message`, without regard to case?
bool mentions(const simdjson::dom::element& entry, std::string_view key, std::string_view message, std::string& list) {
  const std::string lower = ascii_lower(message);
  bool any = false, hit = false;
  for (const simdjson::dom::element word : (**get_array(entry, key, "manifest")).get_array()) {
    const std::string text = ascii_lower(std::string_view(word));
    list += list.empty() ? text : ", " + text;
    any = true;
    hit = hit || lower.find(text) != std::string::npos;
  }
  return hit || !any;
}

TEST(Malformed, EveryCaseOfTheManifest) {
  const std::string script = SWORDFISH_SHARED "/fixtures/make_malformed.py";
  if (!std::filesystem::exists(script)) GTEST_SKIP() << "not there: " << script;
  const TempFolder temp;
  const std::string out = temp.path("cases");
  const std::string command = "python3 '" + script + "' '" + out + "' > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(cert-env33-c): a fixed command of the test itself

  const auto text = io::read_text(out + "/manifest.json", 16 << 20);
  ASSERT_TRUE(text.ok());
  const auto json = Json::parse(*text, "manifest.json");
  ASSERT_TRUE(json.ok());
  int refused = 0, loaded = 0;
  for (const simdjson::dom::element entry : (**get_array(json->root(), "cases", "manifest")).get_array()) {
    const std::string name(**get_string(entry, "name", "manifest"));
    SCOPED_TRACE(name);
    const Status status = open_and_load(out + "/" + std::string(**get_string(entry, "path", "manifest")));
    if (**get_string(entry, "expected", "manifest") == "load") {
      EXPECT_TRUE(status.ok()) << status.message();
      ++loaded;
      continue;
    }
    ++refused;
    ASSERT_FALSE(status.ok()) << **get_string(entry, "about", "manifest");
    EXPECT_TRUE(status.code() == Code::malformed || status.code() == Code::unsupported || status.code() == Code::io)
        << status.message();
    std::string words, names;
    EXPECT_TRUE(mentions(entry, "words", status.message(), words)) << status.message() << "\nexpected one of: " << words;
    EXPECT_TRUE(mentions(entry, "names", status.message(), names)) << status.message() << "\nexpected one of: " << names;
  }
  EXPECT_EQ(refused, 160);
  EXPECT_EQ(loaded, 10);
}

}  // namespace
}  // namespace swordfish
