// A folder under a temporary name that commit() renames.
#include "io/output_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "io/temporary_names.h"

namespace swordfish::io {
namespace {

void remove_quietly(const std::string& path) {
  std::error_code ignored;  // best effort: the caller has an error or a result already
  std::filesystem::remove_all(path, ignored);
}

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("{}: cannot open the folder: {}", path, errno_text(errno));
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  // Some network file systems cannot sync folders.
  if (result != 0 && error != EINVAL && error != ENOTSUP)
    return io_error("{}: cannot sync the folder: {}", path, errno_text(error));
  return {};
}

}  // namespace

Result<std::unique_ptr<OutputFolder>> OutputFolder::create(const std::string& path, bool force,
                                                           std::initializer_list<std::string_view> files) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const bool replace = exists(target);
  if (replace && !force) return invalid_argument("{}: exists already; use force to replace it", target);
  if (replace) {
    if (!is_directory(target)) return invalid_argument("{}: exists and is not a folder; it is not replaced", target);
    SF_ASSIGN(const std::vector<std::string> entries, list_directory(target));
    for (const std::string& entry : entries) {
      if (std::find(files.begin(), files.end(), entry) == files.end()) {
        return invalid_argument("{}: holds '{}', which is no earlier result; the folder is not replaced", target, entry);
      }
    }
  }
  std::string temporary;
  for (int i = 0; temporary.empty(); ++i) {
    const std::string candidate = fmt::format("{}.part-{}-{}", target, ::getpid(), i);
    remember_temporary(candidate);
    if (::mkdir(candidate.c_str(), 0777) == 0) {
      temporary = candidate;
      continue;
    }
    const int error = errno;
    forget_temporary(candidate);
    if (error != EEXIST || i == 100) return io_error("{}: cannot make a folder beside it: {}", target, errno_text(error));
  }
  return std::unique_ptr<OutputFolder>(new OutputFolder(std::move(target), std::move(temporary), replace, files));
}

OutputFolder::OutputFolder(std::string path, std::string temporary, bool replace, std::initializer_list<std::string_view> files)
    : path_(std::move(path)), temporary_(std::move(temporary)), replace_(replace) {
  for (const std::string_view name : files) remember_temporary(files_.emplace_back(file(name)));
}

OutputFolder::~OutputFolder() {
  if (temporary_.empty()) return;
  remove_quietly(temporary_);
  forget();
}

void OutputFolder::forget() {
  for (const std::string& name : files_) forget_temporary(name);
  forget_temporary(temporary_);
  temporary_.clear();
}

Status OutputFolder::write_text(std::string_view name, std::string_view text) const { return write_file(file(name), text, false); }

Status OutputFolder::commit() {
  SF_TRY(sync_folder(temporary_));
  // Exchanging leaves the earlier result under the temporary name, for the destructor to remove; without an earlier result the name
  // must still be free. File systems that know neither get a plain rename, which never replaces a folder that is not empty.
  const unsigned how = replace_ ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), how) == 0) {
    if (!replace_) forget();
    return sync_folder(folder_of(path_));
  }
  if (errno == EINVAL || errno == ENOSYS) {
    if (replace_) remove_quietly(path_);
    if (::rename(temporary_.c_str(), path_.c_str()) == 0) {
      forget();
      return sync_folder(folder_of(path_));
    }
  }
  if (errno == EEXIST || errno == ENOTEMPTY) return invalid_argument("{}: exists already; use force to replace it", path_);
  return io_error("{}: cannot rename the finished folder to it: {}", path_, errno_text(errno));
}

}  // namespace swordfish::io
