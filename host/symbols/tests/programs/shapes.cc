// Nested inlined calls, templates, lambdas, local classes, exceptions, cold parts.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shapes {
struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

template <class Number> struct Square : Shape {
    Number side;
    explicit Square(Number side) : side(side) {}
    double area() const override { return static_cast<double>(side) * side; }
};

static inline int clamp(int value, int low, int high) {
    return std::max(low, std::min(value, high));
}

__attribute__((noinline)) double total(const std::vector<std::unique_ptr<Shape>> &all) {
    double sum = 0;
    std::for_each(all.begin(), all.end(), [&](const auto &shape) {
        struct Local {
            static double half(double value) { return value / 2; }
        };
        sum += Local::half(shape->area());
    });
    return sum;
}
} // namespace shapes

namespace {
std::map<std::string, int> counts;

void count(const std::string &name, int step) {
    if (step < 0)
        throw std::invalid_argument(name);
    counts[name] += shapes::clamp(step, 0, 10);
}
} // namespace

int main(int argc, char **argv) {
    std::vector<std::unique_ptr<shapes::Shape>> all;
    for (int i = 0; i < argc * 10; i++)
        all.push_back(std::make_unique<shapes::Square<int>>(i));
    std::function<void(int)> step = [&](int i) { count(argv[0], i); };
    try {
        for (int i = 0; i < argc; i++)
            step(i - 1);
    } catch (const std::invalid_argument &) {
    }
    return shapes::total(all) > 1e9;
}
