// A shared library opened at run time, so that nothing but the machine that has it needs it.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "base/error.h"

namespace swordfish {

class Library {
 public:
  // The first of the names that the loader finds.
  static Result<Library> open(std::initializer_list<const char*> names) {
    std::string why;
    for (const char* name : names) {
      if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return Library(handle);
      if (const char* error = dlerror(); error && why.empty()) why = error;
    }
    return unavailable("{}: set LD_LIBRARY_PATH to the folder that has it", why);
  }
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  // Null where the library has no such function.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace swordfish
