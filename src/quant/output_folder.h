// OutputFolder: a folder that appears under its name whole or not at all.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "swordfish/status.h"

namespace swordfish {

class OutputFolder {
 public:
  // A new folder beside `path`, under a temporary name. Refuses (invalid_argument) when `path` exists; with `force`, an existing
  // folder that holds nothing but `replaceable` files is replaced at commit.
  static Result<std::unique_ptr<OutputFolder>> create(const std::string& path, bool force,
                                                      std::initializer_list<std::string_view> replaceable);
  ~OutputFolder();  // without commit(): nothing remains
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::string file(std::string_view name) const { return temporary_ + "/" + std::string(name); }
  Status commit();

 private:
  OutputFolder(std::string path, std::string temporary, bool replace)
      : path_(std::move(path)), temporary_(std::move(temporary)), replace_(replace) {}
  std::string path_, temporary_;
  bool replace_;  // an earlier result is there
};

}  // namespace swordfish
