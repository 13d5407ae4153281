// RUN: xdsl-opt %s -p 'pebble-split-components{least_gain=-1.0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-split-components: least gain -1.0, expected 0 or more
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
