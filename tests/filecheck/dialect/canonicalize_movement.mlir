// RUN: xdsl-opt %s -p canonicalize --split-input-file | filecheck %s

// CHECK-LABEL: @identities
func.func @identities(%x: tensor<?x4xf32>, %u: tensor<?x?xf32>) -> (tensor<?x4xf32>, tensor<?x?xf32>) {
  %a = pebble.reshape %x to <[_, 4]> : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = pebble.reshape %a to <[d0, _]> : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %c = pebble.transpose %b axes [0, 1] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = pebble.concat %c axis 1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %e = pebble.split %d axis 1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %v = pebble.reshape %u to <[d0, _]> : (tensor<?x?xf32>) -> tensor<?x?xf32>
  // CHECK-NEXT: func.return %x, %u : tensor<?x4xf32>, tensor<?x?xf32>
  func.return %e, %v : tensor<?x4xf32>, tensor<?x?xf32>
}

// -----

// The type stays, and yet values move: two sizes are open, or a size of 0 leaves one open.
// CHECK-LABEL: @not_identities
func.func @not_identities(%u: tensor<?x?xf32>, %z: tensor<?x0xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x0xf32>) {
  %a = pebble.reshape %u to <[2, 6]> : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %b = pebble.reshape %u to <[d1, d0]> : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = pebble.reshape %z to <[3, _]> : (tensor<?x0xf32>) -> tensor<?x0xf32>
  // CHECK: func.return %a, %b, %c : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x0xf32>
  func.return %a, %b, %c : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x0xf32>
}

// -----

// CHECK-LABEL: @merged
func.func @merged(%x: tensor<?x4x6xf32>) -> (tensor<6x?x4xf32>, tensor<?x8x3xf32>, tensor<?x2x2xf32>) {
  %a = pebble.transpose %x axes [2, 0, 1] : (tensor<?x4x6xf32>) -> tensor<6x?x4xf32>
  %b = pebble.transpose %a axes [1, 2, 0] : (tensor<6x?x4xf32>) -> tensor<?x4x6xf32>
  %c = pebble.transpose %b axes [2, 0, 1] : (tensor<?x4x6xf32>) -> tensor<6x?x4xf32>
  // CHECK-NEXT: %c = pebble.transpose %x axes [2, 0, 1] : (tensor<?x4x6xf32>) -> tensor<6x?x4xf32>
  %d = pebble.reshape %x to <[d0, _]> : (tensor<?x4x6xf32>) -> tensor<?x24xf32>
  // CHECK-NEXT: %e = pebble.reshape %x to <[d0, 8, _]> {pebble.node = "second"} : (tensor<?x4x6xf32>) -> tensor<?x8x3xf32>
  %e = pebble.reshape %d to <[d0, 8, _]> {pebble.node = "second"} : (tensor<?x24xf32>) -> tensor<?x8x3xf32>
  %f = pebble.reshape %x to <[_, 4]> : (tensor<?x4x6xf32>) -> tensor<?x4xf32>
  // CHECK-NEXT: %g = pebble.reshape %x to <[_, 2, 2]> : (tensor<?x4x6xf32>) -> tensor<?x2x2xf32>
  %g = pebble.reshape %f to <[d0, 2, 2]> : (tensor<?x4xf32>) -> tensor<?x2x2xf32>
  func.return %c, %e, %g : tensor<6x?x4xf32>, tensor<?x8x3xf32>, tensor<?x2x2xf32>
}

// -----

// Two open sizes cannot be written in one target.
// CHECK-LABEL: @not_merged
func.func @not_merged(%u: tensor<?x?x4xf32>) -> tensor<?x?xf32> {
  // CHECK-NEXT: %a = pebble.reshape
  %a = pebble.reshape %u to <[_, 2]> : (tensor<?x?x4xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %b = pebble.reshape
  %b = pebble.reshape %a to <[d0, _]> {pebble.values = ["b"]} : (tensor<?x2xf32>) -> tensor<?x?xf32>
  func.return %b : tensor<?x?xf32>
}

// -----

// What torch writes for keys: heads are merged with samples, transposed, and cut apart.
// CHECK-LABEL: @unmerged
func.func @unmerged(%x: tensor<?x4x?x32xf32>) -> (tensor<?x4x32x?xf32>, tensor<?x8x32x?xf32>) {
  %a = pebble.reshape %x to <[_, d2, 32]> : (tensor<?x4x?x32xf32>) -> tensor<?x?x32xf32>
  %b = pebble.transpose %a axes [0, 2, 1] : (tensor<?x?x32xf32>) -> tensor<?x32x?xf32>
  // CHECK: %c = pebble.transpose %x axes [0, 1, 3, 2] {pebble.node = "keys"} : (tensor<?x4x?x32xf32>) -> tensor<?x4x32x?xf32>
  %c = pebble.reshape %b to <[_, 4, 32, d2]> {pebble.node = "keys"} : (tensor<?x32x?xf32>) -> tensor<?x4x32x?xf32>
  // CHECK-NEXT: %d = pebble.reshape %b to <[_, 8, 32, d2]>
  %d = pebble.reshape %b to <[_, 8, 32, d2]> : (tensor<?x32x?xf32>) -> tensor<?x8x32x?xf32>
  func.return %c, %d : tensor<?x4x32x?xf32>, tensor<?x8x32x?xf32>
}

// -----

// CHECK-LABEL: @seams
func.func @seams(%x: tensor<?x6xf32>, %p: tensor<?x4xf32>, %q: tensor<?x2xf32>) -> (tensor<?x6xf32>, tensor<?x4xf32>, tensor<?x2xf32>) {
  %a, %b = pebble.split %x axis 1 : (tensor<?x6xf32>) -> (tensor<?x4xf32>, tensor<?x2xf32>)
  %c = pebble.concat %a, %b axis 1 : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
  %d = pebble.concat %p, %q axis 1 : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
  %e, %f = pebble.split %d axis 1 : (tensor<?x6xf32>) -> (tensor<?x4xf32>, tensor<?x2xf32>)
  // CHECK-NEXT: func.return %x, %p, %q : tensor<?x6xf32>, tensor<?x4xf32>, tensor<?x2xf32>
  func.return %c, %e, %f : tensor<?x6xf32>, tensor<?x4xf32>, tensor<?x2xf32>
}

// -----

// Another order, or a cut elsewhere, moves values.
// CHECK-LABEL: @not_seams
func.func @not_seams(%x: tensor<?x6xf32>, %p: tensor<?x4xf32>, %q: tensor<?x2xf32>) -> (tensor<?x6xf32>, tensor<?x2xf32>, tensor<?x4xf32>) {
  // CHECK-NEXT: %a, %b = pebble.split
  %a, %b = pebble.split %x axis 1 : (tensor<?x6xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>)
  // CHECK-NEXT: %c = pebble.concat %b, %a
  %c = pebble.concat %b, %a axis 1 : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x6xf32>
  // CHECK-NEXT: %d = pebble.concat %p, %q
  %d = pebble.concat %p, %q axis 1 : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
  // CHECK-NEXT: %e, %f = pebble.split %d
  %e, %f = pebble.split %d axis 1 : (tensor<?x6xf32>) -> (tensor<?x2xf32>, tensor<?x4xf32>)
  func.return %c, %e, %f : tensor<?x6xf32>, tensor<?x2xf32>, tensor<?x4xf32>
}

// -----

// What is rounded is so before it is moved, once, and what moves it back meets what moved it.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x?x6xf32>) -> tensor<?x?x6xf32> {
  // CHECK-NEXT: %{{.*}} = pebble.activate <quantize(0.5, 3.0)> %x : (tensor<?x?x6xf32>) -> tensor<?x?x6xf32>
  // CHECK-NEXT: func.return
  %a = pebble.reshape %x to <[d0, d1, 2, 3]> : (tensor<?x?x6xf32>) -> tensor<?x?x2x3xf32>
  %b = pebble.activate <quantize(0.5, 3.0)> %a : (tensor<?x?x2x3xf32>) -> tensor<?x?x2x3xf32>
  %c = pebble.transpose %b axes [0, 2, 1, 3] : (tensor<?x?x2x3xf32>) -> tensor<?x2x?x3xf32>
  %d = pebble.activate <quantize(0.5, 3.0)> %c : (tensor<?x2x?x3xf32>) -> tensor<?x2x?x3xf32>
  %e = pebble.transpose %d axes [0, 2, 1, 3] : (tensor<?x2x?x3xf32>) -> tensor<?x?x2x3xf32>
  %f = pebble.reshape %e to <[d0, d1, 6]> : (tensor<?x?x2x3xf32>) -> tensor<?x?x6xf32>
  func.return %f : tensor<?x?x6xf32>
}

// -----

// Other activations stay where they are, and what is read unrounded, too, is moved once.
// CHECK-LABEL: @not_rounded
func.func @not_rounded(%x: tensor<?x4xf32>) -> (tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>) {
  // CHECK-NEXT: %a = pebble.transpose %x
  %a = pebble.transpose %x axes [1, 0] : (tensor<?x4xf32>) -> tensor<4x?xf32>
  // CHECK-NEXT: %b = pebble.activate <relu> %a
  %b = pebble.activate <relu> %a : (tensor<4x?xf32>) -> tensor<4x?xf32>
  // CHECK-NEXT: %c = pebble.transpose %x
  %c = pebble.transpose %x axes [1, 0] : (tensor<?x4xf32>) -> tensor<4x?xf32>
  // CHECK-NEXT: %d = pebble.activate <quantize(0.5, 3.0)> %c
  %d = pebble.activate <quantize(0.5, 3.0)> %c : (tensor<4x?xf32>) -> tensor<4x?xf32>
  func.return %b, %c, %d : tensor<4x?xf32>, tensor<4x?xf32>, tensor<4x?xf32>
}
