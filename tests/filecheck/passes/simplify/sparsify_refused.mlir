// RUN: xdsl-opt %s -p 'pebble-sparsify{threshold=1.5}' --verify-diagnostics | filecheck %s

// CHECK: pebble-sparsify: threshold 1.5, expected 0 to 1
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  func.return %x : tensor<?x2xf32>
}
