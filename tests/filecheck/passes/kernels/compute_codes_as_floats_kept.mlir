// RUN: xdsl-opt %s -p pebble-compute-codes-as-floats | filecheck %s

// Codes at an end stay, and so do codes that a call finds.
// CHECK-LABEL: @ends
func.func @ends(%x: tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %m = pebble.constant dense<[0.5, 1.0]> : tensor<2xf32>
  // CHECK: %h = pebble.linear %x, %w times %m
  %h = pebble.linear %x, %w times %m : tensor<2xf32> : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.linear %h, %w times %m : tensor<2xf32> precision "u8"
  %y = pebble.linear %h, %w times %m : tensor<2xf32> precision "u8" : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
