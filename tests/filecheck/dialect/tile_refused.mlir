// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected a pebble.yield at the end of the body
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    "test.termop"() : () -> ()
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: Operation pebble.activate terminates block in single-block region but is not a terminator
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.activate <relu> %a : (tensor<?x4xf32>) -> tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: argument 0 is ?x3 inside and ?x4 outside
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x6xf32> {
  ^bb0(%a: tensor<?x3xf32>):
    %b = pebble.constant dense<1.0> : tensor<4xf32>
    %c = pebble.concat %a, %a axis 1 : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x6xf32>
    pebble.yield %c : tensor<?x6xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: result 0 is ?x4 inside and ?x2 outside
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x2xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: 2 results inside, 1 outside
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a, %a : tensor<?x4xf32>, tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: rows_of has 2 entries for 1 results
  %p = pebble.tile %x rows_of [0, 0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: rows_of names operand 1 of 1
  %p = pebble.tile %x rows_of [1] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: result has rows 5, operand 0 has ?
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<5x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: pebble.linear in the body uses a value from outside that is no constant
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x2xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.linear %a, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
    pebble.yield %b : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: pebble.reshape in the body does not work row by row
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x2xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.reshape %a to <[_, 2]> : (tensor<?x4xf32>) -> tensor<?x2xf32>
    pebble.yield %b : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: pebble.concat in the body does not work row by row
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.concat %a, %a axis 0 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    pebble.yield %b : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: pebble.foreign in the body does not work row by row
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.foreign "Cos" at 1 reads %a as ["a"] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    pebble.yield %b : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected rows of known size from pebble.add in the body, got 3x4
  %p = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %c = pebble.constant dense<1.0> : tensor<3x4xf32>
    %b = pebble.add %a, %c : (tensor<?x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected inside a pebble.tile, pebble.scan, pebble.image_network or pebble.sparse_network
  pebble.yield %x : tensor<?x4xf32>
}
