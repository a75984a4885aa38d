// OutputFolder: a folder that appears under its name whole or not at all.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/status.h"

namespace swordfish::io {

class OutputFolder {
 public:
  // A new folder beside `path`, under a temporary name. Refuses (invalid_argument) when `path` exists; with `force`, an existing
  // folder that holds nothing but files of the names in `files` is replaced at commit. `files`: all that will be written.
  static Result<std::unique_ptr<OutputFolder>> create(const std::string& path, bool force,
                                                      std::initializer_list<std::string_view> files);
  ~OutputFolder();  // without commit(): nothing remains, nor after SIGINT, SIGTERM or SIGHUP
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::string file(std::string_view name) const { return temporary_ + "/" + std::string(name); }  // its path until commit()
  Status write_text(std::string_view name, std::string_view text) const;                          // a whole file
  Status commit();

 private:
  OutputFolder(std::string path, std::string temporary, bool replace, std::initializer_list<std::string_view> files);
  void forget();

  std::string path_, temporary_;
  bool replace_;                    // an earlier result is there
  std::vector<std::string> files_;  // in the temporary folder
};

}  // namespace swordfish::io
