// RUN: xdsl-opt %s | xdsl-opt | filecheck %s

// CHECK-LABEL: @main
func.func @main(%x: tensor<?x3x4xf32>, %r: tensor<?x3x2xf32>) -> tensor<?x3x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  // CHECK: %y = pebble.sparse_network %x, %r dims {{\[\[}}"d0", "3", "4"], ["d0", "3", "2"]] because "1 of 1" {pebble.node = "fc"} : (tensor<?x3x4xf32>, tensor<?x3x2xf32>) -> tensor<?x3x2xf32> {
  // CHECK-NEXT: ^{{.*}}(%a: tensor<?x3x4xf32>, %b: tensor<?x3x2xf32>):
  %y = pebble.sparse_network %x, %r dims [["d0", "3", "4"], ["d0", "3", "2"]] because "1 of 1" {pebble.node = "fc"} : (tensor<?x3x4xf32>, tensor<?x3x2xf32>) -> tensor<?x3x2xf32> {
  ^bb0(%a: tensor<?x3x4xf32>, %b: tensor<?x3x2xf32>):
    %h = pebble.linear %a, %w : (tensor<?x3x4xf32>, tensor<4x2xf32>) -> tensor<?x3x2xf32>
    %s = pebble.add %h, %b : (tensor<?x3x2xf32>, tensor<?x3x2xf32>) -> tensor<?x3x2xf32>
    // CHECK: pebble.yield %s : tensor<?x3x2xf32>
    pebble.yield %s : tensor<?x3x2xf32>
  }
  func.return %y : tensor<?x3x2xf32>
}
