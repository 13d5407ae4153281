// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<?x8x4xf32>, %y: tensor<?x8x2xf32>) -> (tensor<?x8x2xf32>, tensor<?x8x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  %p, %q = pebble.tile %x, %y rows_of [0, 1] schedule <widths = [16, 64]> : (tensor<?x8x4xf32>, tensor<?x8x2xf32>) -> (tensor<?x8x2xf32>, tensor<?x8x4xf32>) {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<?x2xf32>):
    %h = pebble.linear %a, %w activation <relu> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
    %s = pebble.add %h, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
    %c = pebble.concat %s, %b axis 1 : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
    pebble.yield %s, %c : tensor<?x2xf32>, tensor<?x4xf32>
  }
  func.return %p, %q : tensor<?x8x2xf32>, tensor<?x8x4xf32>
}

// CHECK:      %p, %q = pebble.tile %x, %y rows_of [0, 1] schedule <widths = [16, 64]> : (tensor<?x8x4xf32>, tensor<?x8x2xf32>) -> (tensor<?x8x2xf32>, tensor<?x8x4xf32>) {
// CHECK-NEXT: ^{{.*}}(%a: tensor<?x4xf32>, %b: tensor<?x2xf32>):
// CHECK-NEXT:   %h = pebble.linear %a, %w activation <relu> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
// CHECK-NEXT:   %s = pebble.add %h, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
// CHECK-NEXT:   %c = pebble.concat %s, %b axis 1 : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:   pebble.yield %s, %c : tensor<?x2xf32>, tensor<?x4xf32>
// CHECK-NEXT: }
