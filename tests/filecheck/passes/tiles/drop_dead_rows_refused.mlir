// RUN: xdsl-opt %s -p 'pebble-drop-dead-rows{l2_bytes=0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-drop-dead-rows: l2_bytes is 0, expected 1 or more
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  func.return %x : tensor<?x2xf32>
}
