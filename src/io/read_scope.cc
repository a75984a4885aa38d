// The scope of each thread.
#include "io/read_scope.h"

#include <utility>

namespace swordfish::io {
namespace {

thread_local const ReadScope* current = nullptr;

}  // namespace

ReadScope::ReadScope(const ByteSource& source, const std::map<std::string, std::size_t>& files) : source_(source), files_(files) {
  current = this;
}
ReadScope::~ReadScope() { current = nullptr; }

bool ReadScope::serve(const std::string& path, std::uint64_t offset, std::size_t size, void* out, Status& status) {
  const ReadScope* const scope = current;
  if (scope == nullptr) return false;
  const auto file = scope->files_.find(path);
  if (file == scope->files_.end()) return false;
  current = nullptr;
  status = scope->source_.read(file->second, offset, size, out);
  current = scope;
  return true;
}

}  // namespace swordfish::io
